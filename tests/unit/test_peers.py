"""Who ran with whom. Runs are written as one string per node: the letter of the run that it is on at each moment."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from bot import policy as policies
from bot.policy import Signal
from bot.signals.peers import LEAST, NOBODY, NORMAL, Groups, Stay, deviations
from bot.signals.rows import row_of
from bot.signals.score import Window, score

STEP = 15
T0 = 1_800_000_000
NODES = ("n1", "n2", "n3", "n4", "n5")
POLICY = policies.build()

Floats = NDArray[np.float64]


def times(count: int) -> NDArray[np.int64]:
    return T0 + STEP * np.arange(count)


def at(row: float) -> int:
    return T0 + round(STEP * row)


def drawn(stays: list[Stay], count: int = 6) -> dict[str, str]:
    """node → the first letter of its run at each moment."""
    groups = Groups.of(stays, times(count), NODES)
    names = [stay.run for stay in sorted(stays, key=lambda stay: len(stay.nodes))]
    letters = [["." if n == NOBODY else names[n][0] for n in row] for row in groups.run.tolist()]
    return {node: "".join(row[column] for row in letters) for column, node in enumerate(NODES)}


# -- who was on which run ----------------------------------------------------------------------------------------------


def test_a_run_holds_its_nodes_from_its_start_until_before_its_end() -> None:
    there = drawn([Stay("a", ("n1", "n3"), at(1), at(4))])
    assert there == {"n1": ".aaa..", "n2": "......", "n3": ".aaa..", "n4": "......", "n5": "......"}


def test_a_run_without_an_end_goes_on() -> None:
    assert drawn([Stay("a", ("n1",), at(3))])["n1"] == "...aaa"


def test_a_start_between_two_looks_counts_from_the_next() -> None:
    assert drawn([Stay("a", ("n1",), at(1.2), at(3.2))])["n1"] == "..aa.."


def test_what_lies_outside_the_window_and_on_other_nodes_is_left_out() -> None:
    stays = [Stay("early", ("n1",), at(-9), at(-1)), Stay("late", ("n2",), at(9)), Stay("strange", ("x9",), at(0))]
    assert set("".join(drawn(stays).values())) == {"."}


def test_a_node_changes_from_one_run_to_the_next() -> None:
    stays = [Stay("a", ("n1", "n2"), at(0), at(3)), Stay("b", ("n2", "n3"), at(3))]
    assert drawn(stays) == {"n1": "aaa...", "n2": "aaabbb", "n3": "...bbb", "n4": "......", "n5": "......"}


def test_a_node_that_two_runs_share_belongs_to_the_larger_one_whatever_comes_first() -> None:
    large, small = Stay("large", NODES[:4], at(0)), Stay("small", ("n4", "n5"), at(0), at(4))
    for stays in ([large, small], [small, large]):
        assert drawn(stays)["n4"] == "llllll"
        assert drawn(stays)["n5"] == "ssss.."


def test_two_attempts_of_one_job_are_two_runs_and_the_age_begins_anew() -> None:
    stays = [Stay("1#0", ("n1",), at(0), at(2)), Stay("1#1", ("n1",), at(3))]
    groups = Groups.of(stays, times(6), NODES)
    assert groups.age[:, 0].tolist() == [0, 15, math.inf, 0, 15, 30]
    assert len(set(groups.run[:, 0].tolist())) == 3


def test_the_age_counts_from_the_true_start_also_before_the_window() -> None:
    groups = Groups.of([Stay("a", ("n1",), at(-100))], times(2), NODES)
    assert groups.age[:, 0].tolist() == [1500, 1515]


def test_each_run_is_told_as_the_block_that_it_spans() -> None:
    stays = [Stay("a", ("n1", "n2", "n4"), at(1), at(4)), Stay("bigger", ("n2", "n3", "n4", "n5"), at(3))]
    told = list(Groups.of(stays, times(6), NODES).each())
    (rows, columns, there), (later, others, all_there) = told
    assert (rows, columns.tolist()) == (slice(1, 4), [0, 1, 3])
    assert there.tolist() == [[True, True, True], [True, True, True], [True, False, False]]
    assert (later, others.tolist(), bool(all_there.all())) == (slice(3, 6), [1, 2, 3, 4], True)


# -- how far one stands from the others --------------------------------------------------------------------------------


def away(values: list[float], stays: list[Stay] | None = None, floor: float = 0.0, floor_abs: float = 1.0) -> Floats:
    """At one moment."""
    groups = Groups.of(stays or [Stay("a", NODES, T0)], times(1), NODES)
    one = np.array(values, dtype=np.float64).reshape(1, 1, -1)
    found, _ = deviations(one, groups, np.full((1, 1, 1), floor), np.full((1, 1, 1), floor_abs))
    return np.asarray(found[0, 0])


def test_spreads_above_the_median() -> None:
    assert away([10, 10, 10, 10, 16]).tolist() == [0, 0, 0, 0, 6]
    assert away([10, 10, 10, 10, 4]).tolist() == [0, 0, 0, 0, -6]


def test_the_spread_is_that_of_the_peers_where_it_is_more_than_the_floors() -> None:
    wide = away([0, 10, 20, 30, 40])
    assert wide.tolist() == pytest.approx([-20 / (10 * NORMAL), -10 / (10 * NORMAL), 0, 1 / NORMAL, 2 / NORMAL])


def test_the_floor_is_the_larger_of_a_share_of_the_median_and_a_number() -> None:
    assert away([100, 100, 100, 100, 150], floor=0.1, floor_abs=1)[-1] == 5
    assert away([100, 100, 100, 100, 150], floor=0.1, floor_abs=25)[-1] == 2
    assert away([-100, -100, -100, -100, -50], floor=0.1, floor_abs=1)[-1] == 5, "a share has no sign"


def test_peers_that_are_all_alike_at_zero_have_no_spread_at_all() -> None:
    assert np.isnan(away([0, 0, 0, 0, 5], floor=0.1, floor_abs=0)).all()


def test_three_live_peers_beside_the_node_are_needed() -> None:
    nan = math.nan
    assert away([10, 10, 10, nan, 16])[[0, 4]].tolist() == [0, 6]
    assert np.isnan(away([10, 10, nan, nan, 16])).all(), "two peers: nobody knows which is the odd one"
    assert np.isnan(away([10, 10, 10, 10, nan])[4]), "one that tells nothing is not compared"


def test_nodes_of_other_runs_and_of_none_are_no_peers() -> None:
    stays = [Stay("a", NODES[:4], T0)]
    assert away([10, 10, 10, 16, 99], stays).tolist()[:4] == [0, 0, 0, 6]
    assert np.isnan(away([10, 10, 10, 16, 99], stays)[4])
    assert np.isnan(away([10, 10, 16, 99, 99], [Stay("a", NODES[:3], T0)])).all()


def test_a_node_is_compared_with_whom_it_is_with_at_that_moment() -> None:
    """n5 goes from cool peers to hot ones in the middle of the window."""
    cool, hot = ("n1", "n2", "n3", "n4"), ("h1", "h2", "h3", "h4")
    stays = [Stay("a", (*cool, "n5"), at(0), at(2)), Stay("b", cool, at(2)), Stay("c", (*hot, "n5"), at(2))]
    nodes = (*cool, *hot, "n5")
    groups = Groups.of(stays, times(4), nodes)
    values = np.broadcast_to(np.array([40.0] * 4 + [80.0] * 4 + [80.0]), (1, 4, 9))
    found, usual = deviations(values, groups, np.zeros((1, 1, 1)), np.full((1, 1, 1), 10.0))
    assert found[0, :, 8].tolist() == [4, 4, 0, 0]
    assert usual[0, :, 8].tolist() == [40, 40, 80, 80]


# -- against a loop that does one cell after the other ------------------------------------------------------------------


def naive(values: Floats, groups: Groups, floor: Floats, floor_abs: Floats) -> Floats:
    found = np.full(values.shape, np.nan)
    for s, t, n in np.ndindex(*values.shape):
        run = groups.run[t, n]
        mates = [values[s, t, m] for m in range(values.shape[2]) if run != NOBODY and groups.run[t, m] == run]
        live = [value for value in mates if not math.isnan(value)]
        if len(live) <= LEAST or math.isnan(values[s, t, n]):
            continue
        middle = float(np.median(live))
        spread = NORMAL * float(np.median([abs(value - middle) for value in live]))
        spread = max(spread, floor[s, 0, 0] * abs(middle), floor_abs[s, 0, 0])
        if spread > 0:
            found[s, t, n] = (values[s, t, n] - middle) / spread
    return found


@st.composite
def tables(draw: st.DrawFn) -> tuple[Floats, Groups, Floats, Floats]:
    nodes = tuple(f"n{i}" for i in range(draw(st.integers(1, 9))))
    length = draw(st.integers(1, 6))
    moments = st.integers(-2, length + 1)
    stay = st.builds(
        lambda name, who, start, lasts: Stay(name, tuple(who), at(start), None if lasts is None else at(start + lasts)),
        st.text("abc", min_size=1, max_size=1),
        st.sets(st.sampled_from(nodes), min_size=1),
        moments,
        st.none() | st.integers(0, length),
    )
    groups = Groups.of(draw(st.lists(stay, max_size=5)), times(length), nodes)
    cells = st.sampled_from([0.0, 1.0, 2.0, 2.5, 40.0, -3.0, math.nan])
    shape = (2, length, len(nodes))
    values = np.array(draw(st.lists(cells, min_size=math.prod(shape), max_size=math.prod(shape)))).reshape(shape)
    return values, groups, np.array([0.1, 0.0]).reshape(2, 1, 1), np.array([0.0, 0.5]).reshape(2, 1, 1)


@settings(max_examples=50, deadline=None)
@given(tables())
def test_all_at_once_is_as_one_after_the_other(table: tuple[Floats, Groups, Floats, Floats]) -> None:
    found, usual = deviations(*table)
    np.testing.assert_allclose(found, naive(*table))
    assert not np.isnan(usual[~np.isnan(found)]).any(), "what is compared has something to be compared with"


# -- as evidence -------------------------------------------------------------------------------------------------------


def signal(**evidence: object) -> Signal:
    words = {
        "title": "a",
        "category": "thermal",
        "query": "q",
        "text": "{value:g}, {peers:g}",
        "why": "w",
        "source": "s",
    }
    rule = {"class": "peers", "at": 3, "floor_abs": 1, "strength": 0.5, **evidence}
    return Signal.model_validate({**words, "id": "a", "evidence": rule})


def evidence(it: Signal, values: list[float], stays: list[Stay] | None = None) -> list[float | None]:
    groups = Groups.of([Stay("a", NODES, T0)] if stays is None else stays, times(1), NODES)
    cells = np.array(values, dtype=np.float64).reshape(1, 1, -1)
    seen = Window((it,), NODES, times(1), cells, np.full(5, 8.0), np.full(5, True), groups)
    return [None if math.isnan(value) else value for value in score(seen, POLICY).evidence[0, 0].tolist()]


def test_only_the_side_that_is_asked_for_is_bad() -> None:
    assert evidence(signal(side="high"), [10, 10, 10, 4, 16]) == [0, 0, 0, 0, 0.5]
    assert evidence(signal(side="low"), [10, 10, 10, 4, 16]) == [0, 0, 0, 0.5, 0]


def test_peers_that_do_too_little_are_nothing_to_be_compared_with() -> None:
    assert evidence(signal(side="low", least=10), [10, 10, 10, 10, 0]) == [0, 0, 0, 0, 0.5]
    assert evidence(signal(side="low", least=11), [10, 10, 10, 10, 0]) == [0, 0, 0, 0, 0]


def test_a_node_without_peers_has_nothing_against_it_and_one_without_a_value_is_unknown() -> None:
    assert evidence(signal(), [10, 10, 10, 99, math.nan], stays=[]) == [0, 0, 0, 0, None]
    assert evidence(signal(), [10, 10, math.nan, math.nan, 99]) == [0, 0, None, None, 0]


def test_the_reading_says_what_is_usual() -> None:
    groups = Groups.of([Stay("a", NODES, T0)], times(1), NODES)
    cells = np.array([10.0, 11, 10, 10, 30]).reshape(1, 1, -1)
    seen = Window((signal(),), NODES, times(1), cells, np.full(5, 8.0), np.full(5, True), groups)
    assert row_of(score(seen, POLICY), 0).scores["n5"].reasons[0].text == "30, 10"
