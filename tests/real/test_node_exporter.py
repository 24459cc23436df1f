"""Sixty real node_exporters whose NFS counters move by Little's law, a real Prometheus, and the bot as a site file sets
it up: one run's saves run out of RPC slots, the other's mount sees all that must not disturb anybody."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from bot.model import Incident, Stall, StorageView
from bot.sandbox.storage_counters import MB, SIZE, Save, Site, Spell, StorageCounters
from tests.real.exporter import Exporter
from tests.real.nfs_clients import SPEED, Clients, Run, write_past
from tests.real.prometheus import Prometheus
from tests.real.storage_bot import StorageBot

pytestmark = pytest.mark.real

CLIENTS = 30  # of each run
STALLS, SILENT = "storage-01:/export/ckpt", "storage-02:/export/ckpt"
CYCLE, TAKES = 13, 4  # s from save to save, and of a save that nothing holds up
AHEAD = 10  # s from the start of Prometheus to the fault: for 5 s it only gathers targets
FAULT = 4 * CYCLE  # s of the runs, in which they have saved four times
TOLD = FAULT - 4  # up to here Prometheus is told the past; what is scraped of that it refuses
CURED = FAULT + 7
SLOTS, RTT = 16, 0.1
SAVES = tuple(Save(int(max(1, n * CYCLE) * SPEED), bytes=TAKES * SPEED * 670 * MB) for n in (0, 1, 2, 3, 4, 5.2, 6.2))


def site(*spells: Spell, seed: int) -> Site:
    hours = (FAULT + 3 * CYCLE) * SPEED / 3600
    return Site(nodes=CLIENTS, spares=0, rtt=RTT, hours=hours, saves=SAVES, spells=spells, seed=seed)


def spell(what: str, start: float, end: float, value: float = 1.0, node: int | None = None) -> Spell:
    """From start until end in real seconds."""
    return Spell(what, round(start * SPEED), round(end * SPEED), value, node)


FEW_SLOTS = site(spell("slots", FAULT, CURED, SLOTS), seed=1)
LIVELY = site(
    spell("write", FAULT + TAKES + 1, FAULT + TAKES + 4, 40 * MB, node=0),  # an evaluation tells its results
    spell("read", FAULT + TAKES + 1, FAULT + TAKES + 3, 100 * MB),  # and has read its data
    spell("down", FAULT + TAKES + 2, FAULT + TAKES + 5, node=5),  # a node reboots; its counters begin anew
    seed=2,
)


@dataclass
class Played:
    """What the bot saw of both runs, and recorded. start: of the runs."""

    start: int
    views: list[StorageView]
    incidents: list[Incident]
    story: list[tuple[int, str]]
    stalls: list[Stall]


@pytest.fixture(scope="module")
def played(real_root: Path) -> Iterator[Played]:
    root = real_root / "clients"
    names = tuple(f"node-{i:02d}" for i in range(1, 2 * CLIENTS + 1))
    clients, exporter = Clients(root, names), Exporter(1)
    exporter.nodes = []
    try:
        counters = [StorageCounters(few) for few in (FEW_SLOTS, LIVELY)]
        start = int(time.time()) + AHEAD - FAULT
        runs = (Run(counters[0], STALLS, names[:CLIENTS], start), Run(counters[1], SILENT, names[CLIENTS:], start))
        clients.play(runs)
        write_past(root / "past.om", (told for run in runs for told in run.past(start + TOLD)))
        server = Prometheus(root, exporter, more=[clients.scrape()])
        try:
            yield play(root, server, start)
        finally:
            server.stop()
    finally:
        exporter.stop()
        clients.stop()


def play(root: Path, server: Prometheus, start: int) -> Played:
    bot = StorageBot(root / "bot", server.url, {"1": CLIENTS, "2": CLIENTS}, start, {"normal_saves": 1})
    seen: list[StorageView] = []
    try:
        while time.time() < start + FAULT + 3 * CYCLE and not any(i.closed for i in bot.incidents()):
            seen += bot.turn().storage
        return Played(start, seen, bot.incidents(), bot.story(), [v.stall for v in seen if v.stall])
    finally:
        bot.close()


def test_full_slots_are_named_while_the_save_lasts_and_closed_when_the_next_one_is_normal(played: Played) -> None:
    assert [text for _, text in played.story] == ["opened: slow_save client_slots", "over", "closed"]
    (incident,) = played.incidents
    assert incident.subject == STALLS and incident.stall and incident.stall.ended
    assert played.start + FAULT <= incident.stall.onset <= incident.stall.ended
    assert incident.closed_why.startswith("1 normal saves since")


def test_the_numbers_in_it_are_those_of_the_clients(played: Played) -> None:
    found = played.stalls[0].measures
    assert (found.slots, found.nodes) == (SLOTS, CLIENTS)
    assert found.in_flight == pytest.approx(SLOTS, rel=0.2)
    assert found.queue_share is not None and found.queue_share > 0.9
    assert found.rtt == pytest.approx(RTT / SPEED, rel=0.2)
    assert found.rate == pytest.approx(CLIENTS * SLOTS * SIZE / RTT * SPEED, rel=0.3)


def test_evaluations_and_a_reboot_beside_saves_open_nothing(played: Played) -> None:
    mine = [view for view in played.views if view.export == SILENT]
    assert len(mine) > 10 and not any(view.stall for view in mine)
    run = next(s for s in mine[-1].sessions if s.phase != "unknown")
    saves = [save for save in run.saves if save.end]
    assert len(saves) >= 5 and not any(save.slow for save in saves)
    assert saves[-1].bytes == pytest.approx(CLIENTS * TAKES * SPEED * 670 * MB, rel=0.15)
