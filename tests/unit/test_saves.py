"""One row for each save, whoever tells of it and however often."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bot import events as ev
from bot import policy as policies
from bot.errors import UsageError
from bot.model import (
    Burst,
    Checkpoint,
    JobSave,
    KnownSave,
    Observation,
    SaveSource,
    Session,
    SessionStorage,
    StorageView,
)
from bot.save_table import as_json, size, told
from bot.saves import gaps, quantile, run_named, see_saves
from bot.state import Draft, State

POLICY = policies.build()
RUN = Session("c/123@1", "session-123", "c", ("123",), "llm", "u", "xidbot", 1)
T = 1_800_000_000


class Watch:
    """A state, and looks at it."""

    def __init__(self) -> None:
        self.state = State()
        self.state.apply(ev.SessionSeen(T, RUN))
        self.kept = POLICY

    def look(
        self, at: int, *saves: JobSave, bursts: tuple[Burst, ...] = (), exports: tuple[str, ...] = ("nas:/a",)
    ) -> int:
        """Number of events of this look."""
        views = tuple(StorageView(e, (SessionStorage(RUN.key, "quiet", saves=bursts),)) for e in exports if bursts)
        draft = Draft(self.state, at, "p")
        see_saves(draft, Observation(at, at, saves=saves, storage=views), self.kept)
        self.state = draft.state
        return len(draft.events)

    @property
    def rows(self) -> tuple[KnownSave, ...]:
        return self.state.saves_of(RUN.key).saves

    @property
    def facts(self) -> list[tuple[object, ...]]:
        return [(r.started and r.started - T, r.ended and r.ended - T, r.step, r.bytes, r.sources) for r in self.rows]


def says(
    source: SaveSource, start: int | None, end: int | None, step: int | None = None, size: int | None = None
) -> JobSave:
    a, b = (None if x is None else T + x for x in (start, end))
    whole = source == "trainer" or (source != "counters" and end is not None)
    return JobSave("123", KnownSave(a, b, step, size, completed=whole, sources=(source,)))


def burst(start: int, end: int | None, size: float = 1e12, slow: bool = False) -> Burst:
    return Burst(T + start, None if end is None else T + end, size, 4, slow)


def test_a_save_told_by_four_is_one_row_with_the_best_word_of_each() -> None:
    w = Watch()
    assert w.look(T + 400, bursts=(burst(62, 300),)) == 1
    assert w.look(T + 415, says("directory", None, 310, 100, 999), bursts=(burst(62, 300),)) == 1
    assert w.look(T + 430, says("trainer", 60, 305, 100)) == 1
    assert w.look(T + 445, says("pushed", 61, 304, 100, 998)) == 1
    assert w.facts == [(60, 305, 100, 999, ("trainer", "pushed", "directory", "counters"))]
    assert w.rows[0].completed


def test_told_again_at_every_look_and_after_a_restart_it_is_no_event() -> None:
    w = Watch()
    everything = [says("trainer", 60, 305, 100), says("directory", None, 310, 100, 999), says("pushed", 61, None, 100)]
    assert w.look(T + 400, *everything, bursts=(burst(62, 300),)) > 0
    before = w.rows
    assert w.look(T + 415, *everything, bursts=(burst(62, 300),)) == 0
    assert w.look(T + 800, *everything, bursts=(burst(64, 298),)) == 0  # counted anew from another first sample
    assert w.rows == before


def test_saves_made_while_the_bot_was_down_are_all_told_afterwards() -> None:
    w = Watch()
    w.look(T + 100, says("directory", 0, 50, 1))
    assert w.look(T + 9000, *(says("directory", i * 1800, i * 1800 + 50, 1 + i) for i in range(5))) == 4
    assert [r.step for r in w.rows] == [1, 2, 3, 4, 5]
    assert w.look(T + 9015, *(says("directory", i * 1800, i * 1800 + 50, 1 + i) for i in range(5))) == 0


def test_the_same_step_saved_again_after_a_rollback_is_another_save() -> None:
    w = Watch()
    w.look(T + 100, says("trainer", 0, 60, 500))
    w.look(T + 4000, says("trainer", 3600, 3660, 600))
    w.look(T + 8000, says("trainer", 7200, 7260, 500))
    assert [r.step for r in w.rows] == [500, 600, 500]


def test_a_gauge_without_times_makes_one_row_a_step() -> None:
    w = Watch()
    for at, step in ((0, 100), (15, 100), (1800, 200), (1815, 200), (3600, 100)):
        w.look(T + at, says("trainer", None, None, step))
    assert [r.step for r in w.rows] == [100, 200, 100]


def test_a_gauge_without_times_names_the_step_of_the_burst_just_seen() -> None:
    w = Watch()
    w.look(T + 400, bursts=(burst(60, 300),))
    w.look(T + 415, says("trainer", None, None, 100))
    assert w.facts == [(60, 300, 100, 10**12, ("trainer", "counters"))]


def test_a_save_that_pauses_is_one_row_once_the_trainer_has_told_it() -> None:
    w = Watch()
    w.look(T + 700, bursts=(burst(0, 200), burst(320, 600)))
    assert len(w.rows) == 2
    w.look(T + 715, says("trainer", 0, 610, 100), bursts=(burst(0, 200), burst(320, 600)))
    assert [f[:3] for f in w.facts] == [(0, 610, 100)]
    assert w.look(T + 730, says("trainer", 0, 610, 100), bursts=(burst(0, 200), burst(320, 600))) == 0


def test_saves_in_short_order_stay_apart() -> None:
    w = Watch()
    w.look(T + 700, *(says("trainer", i * 200, i * 200 + 40, i) for i in range(3)))
    w.look(T + 715, bursts=tuple(burst(i * 200 + 5, i * 200 + 38) for i in range(3)))
    assert len(w.rows) == 3
    assert all(r.sources == ("trainer", "counters") for r in w.rows)


def test_two_mounts_that_show_the_same_save_are_one_row() -> None:
    w = Watch()
    w.look(T + 400, bursts=(burst(60, 300),), exports=("nas:/a", "nas:/b"))
    assert len(w.rows) == 1


def test_what_only_began_is_not_whole_until_its_end_is_told() -> None:
    w = Watch()
    w.look(T + 70, says("pushed", 60, None, 100))
    assert not w.rows[0].completed
    w.look(T + 2000, says("pushed", 60, None, 100), says("pushed", 60, 1900, 100))
    assert len(w.rows) == 1
    assert (w.rows[0].completed, w.rows[0].seconds) == (True, 1840)


def test_a_burst_under_way_and_a_mount_that_cannot_be_read_tell_nothing() -> None:
    w = Watch()
    assert w.look(T + 100, bursts=(burst(60, None),)) == 0
    unread = StorageView("nas:/a", (SessionStorage(RUN.key, "unknown", saves=(burst(0, 50),)),), known=False)
    draft = Draft(w.state, T, "p")
    see_saves(draft, Observation(T, T, storage=(unread,)), POLICY)
    assert draft.events == []


def test_nothing_is_told_of_runs_that_nobody_cares_for() -> None:
    w = Watch()
    assert w.look(T + 100, replace(says("trainer", 0, 60), job="999")) == 0


def test_a_source_that_only_tells_the_newest_checkpoint_is_enough() -> None:
    draft = Draft(Watch().state, T + 100, "p")
    see_saves(draft, Observation(T, T, checkpoints=(Checkpoint("123", 7, T, T + 50),)), POLICY)
    (row,) = draft.state.saves_of(RUN.key).saves
    assert (row.step, row.seconds, row.sources) == (7, 50, ("trainer",))


def test_the_history_keeps_the_newest_and_older_ones_do_not_come_back() -> None:
    w = Watch()
    w.kept = POLICY.model_copy(update={"storage": POLICY.storage.model_copy(update={"saves_kept": 5})})
    shown = [says("directory", i * 1800, i * 1800 + 50, i) for i in range(8)]
    for i in range(8):
        w.look(T + i * 1800 + 60, *shown[: i + 1])
    assert [r.step for r in w.rows] == [3, 4, 5, 6, 7]
    assert w.look(T + 8 * 1800, *shown) == 0


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.sampled_from(["trainer", "pushed", "directory", "counters"]), min_size=1, max_size=4, unique=True),
    st.permutations(range(6)),
)
def test_in_whatever_order_it_comes_there_is_a_row_for_each_save(sources: list[SaveSource], order: list[int]) -> None:
    w = Watch()
    for n in order:
        for source in sources:
            off = 7 * sources.index(source)
            w.look(
                T + 20_000 + n, says(source, n * 1800 + off, n * 1800 + 120 + off, None if source == "counters" else n)
            )
    assert [r.started is not None and (r.started - T) // 1800 for r in w.rows] == list(range(6))
    assert {len(r.sources) for r in w.rows} == {len(sources)}


# -- looks --------------------------------------------------------------------------------------------------------------


def test_the_table_shows_what_is_known_and_a_dash_for_the_rest() -> None:
    w = Watch()
    w.look(T + 4000, says("trainer", 0, 125, 41250, 1_400_000_000_000), says("trainer", None, 3600, 41300))
    w.look(T + 8000, bursts=(burst(7200, 7900, 2.5e9, slow=True),))
    under_way = KnownSave(T + 9000, None, sources=("counters",))
    text = told(RUN, w.state.saves_of(RUN.key), "UTC", 20, [under_way])
    head, names, *rows, foot = text.splitlines()
    assert (
        head
        == "session-123: 3 saves known, took median 6:52 min, p90 10:42 min, one every 1 h 5 min, 1 of them stalled"
    )
    assert names.split() == ["start", "end", "step", "size", "took", "gap", "whole", "told", "by"]
    assert [" ".join(row.split()) for row in rows] == [
        "15 Jan 08:00:00 15 Jan 08:02:05 41,250 1.4 TB 2:05 min – yes trainer",
        "– 15 Jan 09:00:00 41,300 – – 57:55 min yes trainer",
        "15 Jan 10:00:00 15 Jan 10:11:40 – 2.5 GB 11:40 min ! 1 h 12 min – counters",
        "15 Jan 10:30:00 under way – – – 30:00 min – counters",
    ]
    assert "UTC" in foot
    assert as_json(RUN, w.state.saves_of(RUN.key))["saves"][2]["completed"] is None


def test_a_run_without_a_save_says_that_nothing_was_measured() -> None:
    assert "not measured" in told(RUN, Watch().state.saves_of(RUN.key), "UTC", 20)


def test_a_bad_name_is_told_the_nearest() -> None:
    state = Watch().state
    assert run_named(state, "123") == run_named(state, "session-123") == RUN
    with pytest.raises(UsageError, match="session-132") as error:
        run_named(state, "session-132")
    assert "did you mean session-123?" in str(error.value)


def test_an_id_that_was_used_again_means_the_newer_run() -> None:
    state = Watch().state
    state.apply(ev.SessionEnded(T, RUN.key, "completed"))
    state.apply(ev.SessionSeen(T, replace(RUN, key="c/123@9", first_submit=9)))
    assert run_named(state, "session-123").key == "c/123@9"


@given(st.lists(st.integers(0, 10_000), min_size=1, max_size=30))
def test_a_quantile_lies_among_the_values(values: list[int]) -> None:
    middle, high = quantile(values, 0.5), quantile(values, 0.9)
    assert middle is not None and high is not None
    assert min(values) <= middle <= high <= max(values)
    assert quantile([], 0.5) is None


def test_gaps_and_sizes() -> None:
    assert gaps([KnownSave(0, 10), KnownSave(100, 110), KnownSave(None, 200), KnownSave(300, None)]) == [
        None,
        100,
        90,
        None,
    ]
    assert [size(v) for v in (None, 0, 999, 1500, 2e6, 1.44e12)] == ["–", "0 B", "999 B", "1.5 kB", "2.0 MB", "1.4 TB"]
