"""Saves that are late by the trainer's own word, on a file system that nothing counts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest

from bot.model import Incident, JobSave, KnownSave, Observation, SessionStorage, StorageView
from bot.ports import Observer
from tests.scenarios.test_saves import SavingEyes
from tests.scenarios.world import World, running

Make = Callable[..., World]
MINUTE = 60


@dataclass
class Counted:
    """The eyes below, and one mount."""

    below: Observer
    view: StorageView

    def observe(self, now: int) -> Observation:
        return replace(self.below.observe(now), storage=(self.view,))


class Trainer:
    """Saves every ten minutes and takes one of them."""

    def __init__(self, w: World) -> None:
        self.w, self.eyes = w, SavingEyes(w.eyes)
        w.eyes = self.eyes  # type: ignore[assignment]
        self.step = 0

    def tells(self, started: int, ended: int | None) -> None:
        self.step += 100
        save = KnownSave(started, ended, self.step, completed=ended is not None, sources=("pushed",))
        self.eyes.saves.append(JobSave("123", save))

    def saves(self, count: int, every: int = 10) -> None:
        for _ in range(count):
            self.w.run(minutes=every)
            self.tells(self.w.now - MINUTE, self.w.now - 15)
            self.w.turn()

    def told(self) -> list[tuple[str, str]]:
        found = (i for i in self.w.state.all(Incident) if i.kind == "checkpoint_stall" and i.stall)
        return [(i.subject, i.stall.rule if i.stall else "") for i in found]


@pytest.fixture
def trainer(world: Make) -> Trainer:
    return Trainer(running(world))


def test_a_save_that_does_not_come_is_told_and_ends_with_two_normal_ones(trainer: Trainer) -> None:
    trainer.saves(5)
    trainer.w.run(minutes=19)
    assert trainer.told() == []
    trainer.w.run(minutes=4)
    assert trainer.told() == [("session-123", "overdue_save")]
    incident = trainer.w.incident("checkpoint_stall", "session-123")
    assert incident and incident.stall and incident.stall.verdict == "unknown"
    assert incident.hurt and incident.stall.usual == pytest.approx(600, abs=60)
    trainer.saves(2)
    assert trainer.w.state.open_incidents()
    trainer.saves(1)
    assert not trainer.w.state.open_incidents()
    assert trainer.told() == [("session-123", "overdue_save")]


def test_counters_that_begin_to_show_the_run_do_not_keep_its_stall_open(trainer: Trainer) -> None:
    trainer.saves(5)
    trainer.w.run(minutes=24)
    (session,) = trainer.w.state.live_sessions()
    run = SessionStorage(session.key, "quiet", calm_since=trainer.w.now, cadence=True)
    trainer.eyes.below = Counted(trainer.eyes.below, StorageView("nfs:/ckpt", (run,)))
    trainer.saves(3)
    assert trainer.told() == [("session-123", "overdue_save")] and not trainer.w.state.open_incidents()
    trainer.w.run(minutes=45)  # by the counters the run saves: the trainer's word is not needed
    assert not trainer.w.state.open_incidents()


def test_a_save_that_is_begun_and_takes_far_longer_than_usual_is_told_while_it_lasts(trainer: Trainer) -> None:
    trainer.saves(5)
    trainer.w.run(minutes=9)
    trainer.tells(trainer.w.now, None)
    trainer.w.run(minutes=1.5)
    assert trainer.told() == []
    trainer.w.run(minutes=2)
    assert trainer.told() == [("session-123", "slow_save")]


def test_nothing_is_late_without_a_rhythm_or_where_nobody_tells_any_more(trainer: Trainer) -> None:
    for every in (5, 20, 8, 31, 12):
        trainer.saves(1, every)
    trainer.w.run(minutes=45)
    assert trainer.told() == []


def test_a_trainer_whose_word_is_lost_is_late_with_nothing(trainer: Trainer) -> None:
    trainer.saves(5)
    trainer.w.run(minutes=5)
    trainer.eyes.saves.clear()
    trainer.w.run(minutes=45)
    assert trainer.told() == []


def test_a_new_attempt_owes_no_save_before_its_first(trainer: Trainer) -> None:
    w = trainer.w
    trainer.saves(5)
    w.scheduler.end("123", "FAILED", "1:0")
    w.run(minutes=1)
    w.scheduler.requeue("123")
    w.run(minutes=45)
    assert trainer.told() == []
