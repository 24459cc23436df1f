"""The newest complete save of those that trainers pushed, under whichever name they know their run."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from bot.markers import Marker
from bot.model import Checkpoint
from bot.sources.checkpoints import FirstThatKnows
from bot.sources.pushed import PushedCheckpoints

NOW = 1_800_000_000
NAMES = {"123": ("123", "llama", "session-123")}


def marker(
    step: int | None, ago: int | None, *, job: str = "123", session: str = "", started: int | None = None
) -> Marker:
    return Marker(job, session, step, started, None if ago is None else NOW - ago)


def told(*markers: Marker, jobs: dict[str, tuple[str, ...]] | None = None) -> Sequence[Checkpoint]:
    def under(names: Collection[str]) -> Sequence[Marker]:
        return [m for m in markers if {m.job, m.session} & set(names)]

    return PushedCheckpoints(under).checkpoints(NOW, NAMES if jobs is None else jobs)


def test_the_newest_complete_save_counts_in_whatever_order_they_came() -> None:
    old, new = marker(100, 600), marker(200, 60, started=NOW - 90)
    for markers in ((old, new), (new, old)):
        assert told(*markers) == [Checkpoint("123", 200, NOW - 90, NOW - 60)]


def test_a_run_that_began_again_is_at_the_step_of_its_newest_save() -> None:
    assert [save.step for save in told(marker(200, 600), marker(150, 60))] == [150]


def test_a_save_under_way_is_none_yet() -> None:
    assert told(marker(200, None, started=NOW - 10)) == []
    assert [save.step for save in told(marker(100, 600), marker(200, None, started=NOW - 10))] == [100]


def test_every_name_of_a_run_finds_it_and_no_other_does() -> None:
    by_session, strange = marker(7, 60, job="", session="llama"), marker(9, 30, job="999")
    assert told(by_session, strange) == [Checkpoint("123", 7, None, NOW - 60)]


def test_a_trainers_clock_may_be_a_minute_ahead_and_no_more() -> None:
    assert [save.step for save in told(marker(1, 600), marker(2, -60))] == [2]
    assert [save.step for save in told(marker(1, 600), marker(2, -61))] == [1], "until that moment comes"


def test_what_is_not_told_stays_unknown() -> None:
    assert told(marker(None, 60)) == [Checkpoint("123", None, None, NOW - 60)]
    assert told() == []
    assert told(marker(1, 60), jobs={}) == []


def test_each_job_gets_its_own() -> None:
    jobs = {"1": ("1", "a"), "2": ("2", "b"), "3": ("3",)}
    found = told(marker(5, 60, job="1"), marker(6, 60, job="", session="b"), jobs=jobs)
    assert [(save.job, save.step) for save in found] == [("1", 5), ("2", 6)]


def test_all_that_was_pushed_is_told_also_what_only_began() -> None:
    pushed = [marker(100, 600, started=NOW - 700), marker(200, None, started=NOW - 10)]
    every = FirstThatKnows([PushedCheckpoints(lambda names: pushed)])
    every.checkpoints(NOW, NAMES)
    found = [(s.save.step, s.save.seconds, s.save.completed, s.save.sources) for s in every.told]
    assert found == [(100, 100, True, ("pushed",)), (200, None, False, ("pushed",))]
