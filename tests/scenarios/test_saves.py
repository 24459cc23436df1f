"""A run's saves on a timeline: the trainer, the counters, a restart, a stall with its pictures, and who asks for them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from bot.model import Burst, Checkpoint, JobSave, KnownSave, Observation, Session, StoragePoint, StorageView
from bot.ports import Observer
from bot.storage_post import Pictures, post_pictures
from store.slots import Slots
from store.store import check
from tests.scenarios.test_stalls import EXPORT, Storage, told
from tests.scenarios.world import World, running
from tests.unit.test_storage_charts import PNG, FakeFiles

Make = Callable[..., World]


@dataclass
class SavingEyes:
    """The eyes below, and what a directory shows of saves."""

    below: Observer
    saves: list[JobSave] = field(default_factory=list)

    def observe(self, now: int) -> Observation:
        return replace(self.below.observe(now), saves=tuple(self.saves))


def run_of(w: World) -> Session:
    (session,) = w.state.live_sessions()
    return session


def rows(w: World) -> list[tuple[int | None, tuple[str, ...]]]:
    return [(s.step, s.sources) for s in w.state.saves_of(run_of(w).key).saves]


def burst(w: World, storage: Storage, seconds: int, ended: bool = True) -> None:
    """Counters that show a save which ends now, or is under way."""
    for key, run in storage.runs.items():
        known = tuple(b for b in run.saves if b.end is not None)
        new = Burst(w.now - seconds, w.now if ended else None, 1e12, 4)
        storage.runs[key] = replace(run, saves=(*known, new))
    storage.show(None)


def test_saves_of_trainer_and_counters_become_rows_and_survive_a_restart(world: Make) -> None:
    w = running(world)  # saved at step 100
    storage = Storage(w)
    for step in (200, 300):
        w.run(minutes=20)
        burst(w, storage, 120)
        w.turn()
        storage.eyes.eyes.checkpoints = [Checkpoint("123", step, w.now - 140, w.now - 15)]
        w.turn()
    assert rows(w) == [(100, ("trainer",)), (200, ("trainer", "counters")), (300, ("trainer", "counters"))]
    events = len(w.store.events())
    w.restart()
    w.run(minutes=2)
    assert len(w.store.events()) == events
    assert check(w.path) == []


def test_a_directory_tells_of_the_saves_that_were_missed(world: Make) -> None:
    w = running(world)
    eyes = SavingEyes(w.eyes)
    w.restart()
    w.now += 7200
    eyes.saves = [
        JobSave("123", KnownSave(w.now - ago - 60, w.now - ago, step, 10**12, completed=True, sources=("directory",)))
        for step, ago in ((200, 5400), (300, 3600), (400, 1800))
    ]
    w.eyes = eyes  # type: ignore[assignment]
    w.run(minutes=1)
    assert [step for step, _ in rows(w)] == [100, 200, 300, 400]
    assert len(w.events("SaveSeen")) == 4


def test_anybody_may_ask_for_them_and_sees_the_one_under_way(world: Make) -> None:
    w = running(world)
    storage = Storage(w)
    burst(w, storage, 60, ended=False)
    reply = w.say("UVIEW", "checkpoints session-123")
    assert "1 save known" in reply
    assert "100" in reply and "under way" in reply
    assert "did you mean session-123?" in w.say("UVIEW", "checkpoints session-132")
    assert "usage" in w.say("UVIEW", "checkpoints")


def trace(w: World, rate: float) -> tuple[StoragePoint, ...]:
    return tuple(StoragePoint(w.now - 3600 + 60 * i, rate, 0.9, 128.0) for i in range(60))


def show_trace(storage: Storage, points: tuple[StoragePoint, ...]) -> None:
    views: list[StorageView] = [replace(v, trace=points) for v in storage.eyes.storage]
    storage.eyes.storage = tuple(views)


def test_a_stall_keeps_the_hour_before_it_and_at_its_end_the_hour_before_that(world: Make) -> None:
    w = running(world)
    storage = Storage(w)
    files = FakeFiles()
    slots = Slots(w.store.database)
    pictures = Pictures(w.store, slots, "UTC", "C01", files)
    w.turn()
    storage.stall("unknown")
    show_trace(storage, trace(w, 9e9))
    w.turn()
    slots.want("1.1", "main", channel="C01", text="x", blocks=[{"type": "divider"}], now=w.now)
    with w.store.database.write() as connection:
        connection.execute("update slots set ts = '7.7'")
    storage.stall("server")  # known better, but the picture is of when it opened
    show_trace(storage, trace(w, 1e9))
    w.turn()
    assert told(w).stall.trace[0].rate == 9e9  # type: ignore[union-attr]
    post_pictures(pictures, w.state, w.now)
    storage.end()
    show_trace(storage, trace(w, 30e9))
    w.turn()
    assert told(w).stall.trace[0].rate == 30e9  # type: ignore[union-attr]
    post_pictures(pictures, w.state, w.now)
    post_pictures(pictures, w.state, w.now)
    assert [names[0].split("-")[2].split(".")[0] for _, _, names in files.shown] == ["open", "ended"]
    assert all(body.startswith(PNG) for body in files.bodies)
    assert told(w).subject == EXPORT and check(w.path) == []
