"""The weekly digest as people read it. `UPDATE_GOLDEN=1` writes it anew; read the difference before you commit it."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from bot.compose_digest import digest_card
from bot.digest import digest
from bot.digest_records import Records
from bot.model import (
    Attempt,
    ChainClass,
    Hold,
    Incident,
    Kind,
    KnownSave,
    Link,
    Measures,
    Origin,
    Recovery,
    Session,
    Stall,
    Verdict,
)
from bot.weeks import week_of
from templates.blocks import card_blocks, fallback, plain
from templates.validate import validate

HERE = Path(__file__).parent
WEEK = week_of("2026-W48", "Asia/Seoul")
HOUR, DAY = 3600, 86_400
RUNS = {key: Session(key, f"session-{key}", "c", (key,), "llm", "u", "xidbot", 1, gpus=480) for key in ("123", "456")}
ORIGINS: dict[ChainClass, Origin] = {"automated": "auto", "assisted": "approved", "manual": "command"}


class Log:
    """Recoveries and their incidents, in hours since Monday."""

    def __init__(self) -> None:
        self.incidents: list[Incident] = []
        self.recoveries: list[Recovery] = []

    def stop(self, hour: float, node: str = "", kind: Kind = "gpu_fault", run: str = "123") -> Recovery:
        number, at = len(self.incidents) + 1, WEEK.start + int(hour * HOUR)
        self.incidents.append(Incident(number, 1, kind, node or f"session-{run}", at))
        self.recoveries.append(Recovery(f"{number}.1/{run}", number, 1, run, at, f"{run}#0"))
        return self.recoveries[-1]

    def end(self, r: Recovery, name: ChainClass, *, tries: int = 1, minutes: int | None = None, lasts: int = 0) -> None:
        """minutes: until it regained; None: given up after `lasts` hours."""
        origin = ORIGINS[name]
        failed = tuple(
            Link(f"1#{i}", r.stopped + 60 * i, origin, ended=r.stopped + 60 * i + 30) for i in range(1, tries)
        )
        if minutes is None:
            last = Link("1#99", r.stopped + 600, origin, ended=r.stopped + 700)
            done = _changed(r, (*failed, last), name, "given_up", r.stopped + lasts * HOUR)
        else:
            regained = r.stopped + 60 * minutes
            last = Link("1#99", r.stopped + 600, origin, regained=regained, survived=regained + HOUR)
            done = _changed(r, (*failed, last), name, "survived", regained + HOUR)
        self.recoveries[self.recoveries.index(r)] = done

    def records(self, holds: tuple[Hold, ...] = (), began: int = 0) -> Records:
        night = WEEK.start + 2 * HOUR
        posts = tuple((WEEK.start + i * HOUR, i % 3 > 0) for i in range(23))
        calls = (night, night + 10 * HOUR, night + 12 * HOUR)
        return Records(
            tuple(self.incidents), tuple(self.recoveries), holds, RUNS, calls, posts, began or WEEK.start - DAY
        )


def _changed(r: Recovery, chain: tuple[Link, ...], name: ChainClass, outcome: str, end: int) -> Recovery:
    last = chain[-1]
    return Recovery(
        r.id, r.incident, r.episode, r.session, r.stopped, r.failed_attempt, None, chain,
        last.regained, last.survived, end, outcome, "", name,
    )  # fmt: skip


def hold(node: str, hour: int, by: str = "xidbot", review: int = 24, released: int | None = None) -> Hold:
    at = WEEK.start + hour * HOUR
    gone = None if released is None else WEEK.start + released * HOUR
    return Hold(node, f"{node}{hour}", "Xid 79", by, at, at + review * HOUR, gone)


def busy() -> Records:
    log = Log()
    for hour, minutes in ((5, 34), (30, 48), (52, 51)):
        log.end(log.stop(hour, "node-17"), "automated", tries=2, minutes=minutes)
    log.end(log.stop(60, "node-22"), "automated", tries=3, lasts=3)
    log.end(log.stop(75, "node-08"), "assisted", minutes=55)
    log.end(log.stop(90, "node-41"), "assisted", minutes=100)
    log.end(log.stop(100, kind="session_failed", run="456"), "manual", tries=4, minutes=190)
    log.end(log.stop(120, kind="session_failed", run="456"), "manual", tries=2, lasts=4)
    log.end(log.stop(140, "node-30", run="456"), "manual", lasts=2)
    log.stop(165, "node-12")
    log.incidents += [Incident(40, 1, "blind", "prometheus", WEEK.start), Incident(41, 1, "precursor", "n", WEEK.start)]
    holds = (
        hold("node-17", 5, released=29),
        hold("node-17", 30, review=400),
        hold("node-08", 75),
        hold("node-22", 60, "U02", review=400),
        hold("node-41", 90, review=400),
    )
    return log.records(holds, began=WEEK.start - 15 * DAY)


def storage() -> Records:
    log = Log()
    log.end(log.stop(5, "/data", "checkpoint_stall"), "assisted", minutes=300)
    log.end(log.stop(30, "node-17"), "automated", minutes=40)
    log.incidents += [stall(50, 40, "server", None), stall(51, 60, "client_slots", 0.03), stall(52, 70, "server", 0.91)]
    saves = tuple(("123", KnownSave(WEEK.start + i * HOUR, WEEK.start + i * HOUR + 90 + 10 * i)) for i in range(20))
    runs = {key: replace(run, attempts=(Attempt(f"{key}", 0, "RUNNING", (), WEEK.start),)) for key, run in RUNS.items()}
    return replace(log.records(), saves=saves, runs=runs)


def stall(number: int, hour: int, verdict: Verdict, link: float | None) -> Incident:
    """900 s beyond the usual for one run."""
    at = WEEK.start + hour * HOUR
    told = Stall("nas:/ckpt", "slow_save", verdict, at, measures=Measures(link_use=link), beyond=(("123", 900),))
    return Incident(number, 1, "checkpoint_stall", "nas:/ckpt", at, stall=told)


def quiet() -> Records:
    return Records(began=WEEK.start - DAY)


@pytest.mark.parametrize(("play", "late"), [(busy, False), (storage, False), (quiet, True)], ids=lambda v: str(v))
def test_the_digest_reads_as_it_should(play: Callable[[], Records], late: bool) -> None:
    card = digest_card(digest(play(), WEEK, WEEK.due), late)
    blocks = card_blocks(card)
    assert validate(blocks) == []
    assert plain(blocks)
    text = "\n\n".join([f"notification: {fallback(card)}", *card.paragraphs, card.footer]) + "\n"
    path = HERE / f"digest_{play.__name__}.txt"
    if os.environ.get("UPDATE_GOLDEN"):
        path.write_text(text)
    assert text == path.read_text()
