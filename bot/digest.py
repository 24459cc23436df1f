"""The figures of one calendar week.

What belongs to it: incidents by when they opened, chains by when their run stopped, holds by when they began, lost
time by when it was lost. A chain may end later, so last week's figures can still change.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

from bot.digest_records import Records, read_records
from bot.digest_storage import StorageWeek, storage_week
from bot.events import DigestPosted, Event
from bot.model import Hold, Recovery, Session
from bot.outcomes import Chain, Class, Difference, Figures, Interval, chains, difference, downtimes, figures
from bot.weeks import Week, due_digest
from store.store import Store

DAY = 86_400
NIGHT_FROM, NIGHT_TO = 22, 8  # local hours; a site cannot set its quiet hours yet
LOOK_BACK = 28 * DAY  # bad nodes show over four weeks (Meta RSC, HPCA'25)
REPEATS = 3  # faults in that time: two may be chance
WEEKS_BEFORE = 4


@dataclass(frozen=True, slots=True)
class Holds:
    """made: in the week, and by whom. top3: how many of them on the three nodes held most. standing, overdue: now."""

    made: int
    by: Mapping[str, int]
    top3: int
    standing: int
    overdue: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Noise:
    """messages: all that were posted. in_channel: those not in a thread. mentions: calls for a person."""

    messages: int
    in_channel: int
    mentions: int
    night_mentions: int


@dataclass(frozen=True, slots=True)
class Repeat:
    """A node whose fault of this week was one of several. back: it was given back since, so it may be mended."""

    node: str
    faults: int
    back: bool


@dataclass(frozen=True, slots=True)
class Digest:
    """One week. kinds: episodes of each that occurred. lost: kind → GPU-hours of each of its 7 days. lost_before: of
    the weeks before, newest first.

    to_date: the chains of all weeks up to this one's end. away: runs that stand still. unsized: runs that stood still
    and whose GPU count nobody knows: their time is in no sum. began: when the log begins; None = it is empty.
    """

    week: Week
    kinds: Mapping[str, int]
    chains: tuple[Chain, ...]
    to_date: tuple[Chain, ...]
    lost: Mapping[str, tuple[float, ...]]
    lost_before: tuple[float, ...]
    holds: Holds
    noise: Noise
    repeats: tuple[Repeat, ...]
    away: tuple[str, ...]
    unsized: int
    began: int | None
    storage: StorageWeek = StorageWeek()

    @property
    def classes(self) -> dict[Class, Figures]:
        return figures(self.chains)

    @property
    def gpu_hours_lost(self) -> float:
        return sum(sum(days) for days in self.lost.values())

    @property
    def top3_share(self) -> float | None:
        """None without a hold: the share of nothing is unknown."""
        return self.holds.top3 / self.holds.made if self.holds.made else None

    @property
    def comparison(self) -> Difference | None:
        """Automated minus manual over all weeks: one week never has the cases."""
        known = figures(self.to_date)
        return difference(known["automated"], known["manual"])

    def as_json(self) -> dict[str, Any]:
        """The keys of DETAILS, then what the charts show."""
        return {
            "week": self.week.name,
            "kinds": dict(self.kinds),
            "classes": {name: _class_json(f) for name, f in self.classes.items()},
            "holds": self.holds.made,
            "top3_share": _rounded(self.top3_share),
            "gpu_hours_lost": _rounded(self.gpu_hours_lost),
            "noise": {name: getattr(self.noise, name) for name in ("messages", "mentions", "night_mentions")},
            "held_by": dict(self.holds.by),
            "reviews_overdue": list(self.holds.overdue),
            "lost_by_day": {kind: [_rounded(hours) for hours in days] for kind, days in self.lost.items()},
            "chains": [_chain_json(chain) for chain in self.chains],
            "storage": self.storage.as_json(),
        }


def _class_json(f: Figures) -> dict[str, Any]:
    counts = {name: getattr(f, name) for name in ("chains", "attempts", "regained", "survived", "recurred")}
    return {**counts, "ci": _interval(f.ci), "survived_ci": _interval(f.survived_ci), "median_s": f.median}


def _chain_json(c: Chain) -> dict[str, Any]:
    facts = {name: getattr(c, name) for name in ("attempts", "regained", "survived", "kind")}
    return {"class": c.chain_class, **facts}


def _interval(ci: Interval | None) -> list[float] | None:
    return [round(ci[0], 4), round(ci[1], 4)] if ci else None


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4)


# -- from records to figures ----------------------------------------------------------------------


def read_digest(path: Path, week: Week, now: int) -> Digest:
    """Raises StoreError."""
    return digest(read_records(path, week), week, now)


def digest(records: Records, week: Week, now: int) -> Digest:
    now = max(now, records.newest)  # a simulated log may be ahead of the clock
    kinds = {i.tag: i.kind for i in records.incidents}
    start, end = week.start, week.end
    up_to = [r for r in records.recoveries if r.stopped < end]
    losses = list(_losses(up_to, now, records.runs))
    return Digest(
        week=week,
        kinds=dict(sorted(Counter(i.kind for i in records.incidents if start <= i.opened < end).items())),
        chains=tuple(chains((r for r in up_to if r.stopped >= start), kinds, now)),
        to_date=tuple(chains(up_to, kinds, now)),
        lost=_lost(losses, week.days, kinds),
        lost_before=tuple(_lost_before(losses, week, records.began)),
        holds=_holds(records.holds, week, now),
        noise=_noise(records, week.tz),
        repeats=tuple(_repeats(records, start, end)),
        away=tuple(sorted({records.runs[r.session].name for r in up_to if _is_down(r)})),
        unsized=len({loss.session for loss in losses if not loss.gpus and _hours(loss, start, end)}),
        began=records.began,
        storage=storage_week(records, week),
    )


def _is_down(recovery: Recovery) -> bool:
    last = recovery.chain[-1] if recovery.chain else None
    return recovery.ended is None and (last is None or last.regained is None or last.ended is not None)


# -- lost time ------------------------------------------------------------------------------------


class Loss(NamedTuple):
    """A stretch without progress. tag: the incident that is charged with it."""

    session: str
    tag: str
    gpus: int
    start: int
    end: int


def _losses(recoveries: Iterable[Recovery], now: int, runs: Mapping[str, Session]) -> Iterator[Loss]:
    """An hour of a run is lost once, whatever its recoveries say: the earlier one is charged."""
    told: dict[str, int] = {}
    for recovery in sorted(recoveries, key=lambda r: (r.stopped, r.id)):
        for since, until in downtimes(recovery, now):
            start = max(since, told.get(recovery.session, since))
            if until > start:
                told[recovery.session] = until
                yield Loss(recovery.session, recovery.tag, runs[recovery.session].gpus, start, until)


def _hours(loss: Loss, start: int, end: int) -> float:
    """Hours of it between two times."""
    return max(0, min(loss.end, end) - max(loss.start, start)) / 3600


def _gpu_hours(losses: Iterable[Loss], start: int, end: int) -> float:
    return sum(loss.gpus * _hours(loss, start, end) for loss in losses)


def _lost(losses: Sequence[Loss], days: Sequence[int], kinds: Mapping[str, str]) -> dict[str, tuple[float, ...]]:
    """The dearest kind first; one that cost nothing is not named."""
    by_kind: dict[str, tuple[float, ...]] = {}
    for kind in set(kinds.values()):
        mine = [loss for loss in losses if kinds[loss.tag] == kind]
        by_kind[kind] = tuple(_gpu_hours(mine, *day) for day in zip(days, days[1:], strict=False))
    dear = sorted(by_kind.items(), key=lambda item: (-sum(item[1]), item[0]))
    return {kind: hours for kind, hours in dear if sum(hours) > 0}


def _lost_before(losses: Sequence[Loss], week: Week, began: int | None) -> Iterator[float]:
    for back in range(1, WEEKS_BEFORE + 1):
        before = week.moved(-back)
        if began is None or began >= before.end:
            return
        yield _gpu_hours(losses, before.start, before.end)


# -- holds, repeats, noise ------------------------------------------------------------------------


def _holds(holds: Sequence[Hold], week: Week, now: int) -> Holds:
    """What stands is told as of now, because it is to be acted on; of an old week as of the Monday after the next."""
    at = min(now, week.moved(1).end)
    made = [h for h in holds if week.start <= h.since < week.end]
    standing = [h for h in holds if h.since <= at and (h.released is None or h.released > at)]
    return Holds(
        made=len(made),
        by=dict(Counter(h.by for h in made).most_common()),
        top3=sum(count for _, count in Counter(h.node for h in made).most_common(3)),
        standing=len(standing),
        overdue=tuple(sorted({h.node for h in standing if h.review is not None and h.review < at})),
    )


def _repeats(records: Records, start: int, end: int) -> Iterator[Repeat]:
    """Most faults first. The episodes of one number are one fault."""
    faults: dict[str, dict[int, int]] = {}
    for incident in records.incidents:
        if incident.kind == "gpu_fault" and end - LOOK_BACK <= incident.opened < end:
            numbers = faults.setdefault(incident.subject, {})
            numbers[incident.id] = max(incident.opened, numbers.get(incident.id, 0))
    for node, opened in sorted(faults.items(), key=lambda item: (-len(item[1]), item[0])):
        newest = max(opened.values())
        if len(opened) >= REPEATS and newest >= start:
            released = [h.released for h in records.holds if h.node == node and h.released is not None]
            yield Repeat(node, len(opened), back=any(at > newest for at in released))


def _noise(records: Records, tz: str) -> Noise:
    zone = ZoneInfo(tz)
    hours = [datetime.fromtimestamp(at, zone).hour for at in records.calls]
    return Noise(
        messages=len(records.posts),
        in_channel=sum(1 for _, in_thread in records.posts if not in_thread),
        mentions=len(hours),
        night_mentions=sum(1 for hour in hours if hour >= NIGHT_FROM or hour < NIGHT_TO),
    )


# -- for the tick ---------------------------------------------------------------------------------


def due_events(store: Store, now: int, tz: str) -> list[Event]:
    """What the tick records so that a digest is posted. Cheap, because it is asked every time."""
    with store.database.read() as connection:
        first = connection.execute("select at from events order by id limit 1").fetchone()
    posted = {known.week for known in store.state().all(DigestPosted)}
    found = due_digest(posted, first["at"] if first else None, now, tz)
    return [found] if found else []
