"""Rows told one after the other are the rows told alone, and none looks further back than one look does."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from bot import policy as policies
from bot.model import NodeScore, Reading
from bot.policy import Signal
from bot.signals.peers import Groups, Stay
from bot.signals.rows import Row, Rows, row_of
from bot.signals.score import Scores, Window, score

STEP = 15
T0 = 1_800_000_000
POLICY = policies.build()
NODES = ("a", "b", "c", "d", "e")


def signal(id: str, category: str = "bus", **fields: Any) -> Signal:
    evidence = {"class": "threshold", "strength": 0.5, **fields.pop("evidence", {})}
    words = {"title": id, "query": "q", "text": "{value:g} of {peers:g}", "why": "w", "source": "s", **fields}
    return Signal.model_validate({**words, "id": id, "category": category, "evidence": evidence})


SIGNALS = (
    signal("weak", evidence={"strength": 0.2}),
    signal("soft", "ecc", evidence={"strength": 0.65, "lasts": 3 * STEP}),
    signal("hard", "gsp", hard=True, evidence={"strength": 1.0, "event": True}),
    signal("slow", "host", persistence=2 * STEP, evidence={"strength": 0.3, "ramp": 4, "full": 0.7}),
    signal("odd", "power", evidence={"class": "peers", "at": 2, "floor_abs": 1, "strength": 0.62}),
    signal("phase", "storage", evidence={"class": "context"}),
)


def scored(values: np.ndarray[Any, Any], signals: Sequence[Signal] = SIGNALS, back: int = 4) -> Scores:
    """values: (S, T, N). back: rows that one look sees before its own."""
    nodes, times = NODES[: values.shape[2]], T0 + STEP * np.arange(values.shape[1])
    groups = Groups.of([Stay("run", nodes, T0)], times, nodes)
    every = np.full(len(nodes), 8.0), np.full(len(nodes), True)
    return replace(score(Window(tuple(signals), nodes, times, values, *every, groups), POLICY), back=back)


def drawn(text: str, it: Signal, back: int = 4) -> Scores:
    """One node and one signal: a digit a look."""
    cells = [math.nan if c == "." else float(c) for c in text]
    return scored(np.array(cells).reshape(1, -1, 1), [it], back)


def told(row: Row) -> tuple[dict[str, NodeScore], tuple[Reading, ...]]:
    """All that is acted on: the value of what is good is shown once it is told anew."""
    return dict(row.scores), tuple(r if r.state == "bad" else replace(r, value=None) for r in row.readings)


# -- what a phase mutes ------------------------------------------------------------------------------------------------


def test_a_reading_says_whether_a_phase_keeps_it_unknown() -> None:
    """Without a run for three looks, then in one; what it had persisted in before the run does not count."""
    quiet = signal("quiet", not_during=("idle",), persistence=2 * STEP)
    times, values = T0 + STEP * np.arange(8), np.array([1, 1, 1, 1, 1, 1, 0, math.nan]).reshape(1, -1, 1)
    groups = Groups.of([Stay("run", ("a",), T0 + 3 * STEP)], times, ("a",))
    window = Window((quiet,), ("a",), times, values, np.array([8.0]), np.array([True]), groups)
    rows = Rows(score(window, POLICY))
    readings = [rows.row(number).readings[0] for number in range(8)]
    assert [r.state for r in readings] == ["unknown"] * 5 + ["bad", "good", "unknown"]
    assert [r.muted for r in readings] == [True] * 5 + [False] * 3


def test_what_was_bad_before_one_looked_is_not_taken_for_begun() -> None:
    """Unknown for some looks within them, it seems to begin anew as soon as the first bad ones are out of sight."""
    rows = Rows(drawn("0011..1111", SIGNALS[0], back=4))
    told = {number: rows.row(number).readings[0] for number in (3, 6, 8, 9)}
    assert [told[number].since for number in (3, 6)] == [T0 + 2 * STEP] * 2
    assert [told[number].begun for number in (3, 6, 8, 9)] == [True, False, False, False]


# -- forward -----------------------------------------------------------------------------------------------------------


@st.composite
def blocks(draw: st.DrawFn) -> tuple[Scores, list[int]]:
    length, count = draw(st.integers(2, 14)), draw(st.integers(1, 5))
    shape = (len(SIGNALS), length, count)
    cells = np.array([0.0, 0.0, 0.0, 1.0, 1.0, 2.0, 5.0, math.nan])
    bits = draw(st.binary(min_size=math.prod(shape), max_size=math.prod(shape)))
    values = cells[np.frombuffer(bits, dtype=np.uint8) % len(cells)].reshape(shape)
    steady = draw(st.sets(st.integers(0, length - 2)))  # much of what is seen stays as it was
    for row in sorted(steady):
        values[:, row + 1] = values[:, row]
    return scored(values, back=draw(st.integers(0, 6))), draw(st.lists(st.integers(0, length - 1), max_size=8))


@settings(max_examples=40, deadline=None)
@given(blocks())
def test_rows_told_in_any_jumps_are_the_rows_told_alone(block: tuple[Scores, list[int]]) -> None:
    scores, jumps = block
    rows = Rows(scores)
    for number in [*sorted(jumps), *range(len(scores.window.times)), *jumps]:
        assert told(rows.row(number)) == told(row_of(scores, number)), f"row {number}"


def test_what_stays_as_it_was_is_not_made_anew() -> None:
    rows = Rows(drawn("0000", SIGNALS[0]))
    first = rows.row(1)
    assert rows.row(2) is first


def test_what_is_usual_may_move_while_the_node_stands_still() -> None:
    values = np.full((1, 2, 5), 10.0)
    values[0, :, 4] = 50
    values[0, 1, :4] = 12
    rows = Rows(scored(values, [SIGNALS[4]]))
    assert [rows.row(n).scores["e"].reasons[0].text for n in (0, 1)] == ["50 of 10", "50 of 12"]


# -- back --------------------------------------------------------------------------------------------------------------


def test_since_looks_no_further_than_one_look() -> None:
    scores = drawn("01111111", SIGNALS[0], back=4)
    assert [row_of(scores, n).readings[0].since for n in range(8)] == [
        None,
        *[T0 + STEP] * 5,
        T0 + 2 * STEP,
        T0 + 3 * STEP,
    ]


def test_soft_for_looks_no_further_than_one_look() -> None:
    scores = drawn("01111111", SIGNALS[1], back=4)
    assert [row_of(scores, n).scores["a"].soft_for // STEP for n in range(8)] == [0, 0, 1, 2, 3, 4, 4, 4]


def test_soft_for_grows_while_nothing_else_changes() -> None:
    rows = Rows(drawn("0111111", SIGNALS[1], back=6))
    assert [rows.row(n).scores["a"].soft_for // STEP for n in (1, 2, 6)] == [0, 1, 5]


# -- where something strikes -------------------------------------------------------------------------------------------


def strikes(text: str, it: Signal) -> str:
    return "".join("x" if struck else "." for struck in Rows(drawn(text, it)).strikes[1:])


def test_what_begins_or_ends_to_count_strikes() -> None:
    assert strikes("00110", SIGNALS[0]) == ".x.x"
    assert strikes("01230", SIGNALS[0]) == "x..x", "another value that counts the same does not"


def test_other_strength_strikes() -> None:
    assert strikes("01245", signal("ramp", evidence={"ramp": 4, "full": 0.9})) == "xxx."


def test_a_node_of_which_nothing_is_known_any_more_strikes() -> None:
    assert strikes("00..0", SIGNALS[0]) == ".x.x"


def test_a_node_whose_gpus_nobody_sees_any_more_strikes_though_its_host_is_seen() -> None:
    """It opens `blind`, which nobody would look for otherwise."""
    gpus, host = signal("gpus", exporter="dcgm"), signal("host", exporter="node")
    values = np.zeros((2, 4, 1))
    values[0, 2:] = math.nan
    assert Rows(scored(values, [gpus, host])).strikes.tolist() == [True, False, True, False]


# -- which row a moment has ----------------------------------------------------------------------------------------------


def test_a_moment_has_the_row_at_or_before_it() -> None:
    rows = Rows(drawn("0000", SIGNALS[0]))
    assert [rows.at(T0 + s) for s in (0, 14, 15, 59)] == [0, 0, 1, 3]
    assert rows.at(T0 - 1) == rows.at(T0 + 60) == -1


def test_a_good_reading_tells_on_which_side_of_the_line_it_is_where_a_warning_is_over() -> None:
    hovers = signal("hovers", evidence={"at": 5, "until": 3})
    rows = Rows(drawn("9442439", hovers))
    told = [rows.row(number).readings[0] for number in range(7)]
    assert [r.state for r in told] == ["bad"] + ["good"] * 5 + ["bad"]
    assert [(r.value or 0) >= 3 for r in told] == [True, True, True, False, True, True, True]
