"""What is usual in a save, in a load, at a start: five nodes on a clock of 15 s; settling takes 4 min, 16 looks."""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.typing import NDArray

from bot import policy as policies
from bot.signals.peers import Groups, Stay
from bot.signals.phases import READS, UPTIME, WRITES, phases
from bot.signals.score import Window, score

STEP = 15
T0 = 1_800_000_000
NODES = ("n1", "n2", "n3", "n4", "n5")
POLICY = policies.build()
NUMBERS = POLICY.numbers.phases
SETTLE = NUMBERS.settle // STEP
MANY = NUMBERS.save_bytes * 10

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]


def groups(rows: int, *stays: Stay) -> Groups:
    return Groups.of(stays, T0 + STEP * np.arange(rows), NODES)


def on(run: str, *nodes: str, start: int = -100_000, end: int | None = None) -> Stay:
    return Stay(run, nodes, T0 + start, None if end is None else T0 + end)


def written(rows: int, **cells: float) -> Floats:
    """(T, N) zeros, with n1…n5's value at the first moment."""
    values = np.zeros((rows, len(NODES)))
    for node, value in cells.items():
        values[0, NODES.index(node)] = value
    return values


def row(flags: Flags, number: int) -> list[str]:
    return [node for node, there in zip(NODES, flags[number], strict=True) if there]


def test_a_save_is_told_by_what_the_run_writes_on_average_whoever_writes() -> None:
    """Rank 0 alone writes: the others are in the save too, and a node of another run is not."""
    mine = groups(1, on("a", "n1", "n2", "n3"), on("b", "n4"))
    found = phases({WRITES: written(1, n1=MANY)}, mine, STEP, NUMBERS)
    assert row(found["save"], 0) == ["n1", "n2", "n3"]
    assert row(found["load"], 0) == []


def test_a_little_writing_of_one_is_no_save_of_all() -> None:
    mine = groups(1, on("a", "n1", "n2", "n3", "n4"))
    found = phases({WRITES: written(1, n1=NUMBERS.save_bytes * 3.9)}, mine, STEP, NUMBERS)
    assert row(found["save"], 0) == []


def test_a_node_of_which_nothing_is_known_does_not_count_in_the_average() -> None:
    mine = groups(1, on("a", "n1", "n2"))
    alone = phases({WRITES: written(1, n1=NUMBERS.save_bytes, n2=math.nan)}, mine, STEP, NUMBERS)
    assert row(alone["save"], 0) == ["n1", "n2"]


def test_a_node_without_a_run_speaks_for_itself() -> None:
    found = phases({READS: written(1, n5=MANY, n4=math.nan)}, groups(1), STEP, NUMBERS)
    assert row(found["load"], 0) == ["n5"]
    assert row(found["idle"], 0) == list(NODES)


def test_a_save_lasts_until_the_rates_have_forgotten_it() -> None:
    mine = groups(SETTLE + 3, on("a", *NODES))
    values = np.zeros((SETTLE + 3, len(NODES)))
    values[1] = MANY
    found = phases({WRITES: values}, mine, STEP, NUMBERS)["save"]
    assert found[:, 0].tolist() == [False, *[True] * (SETTLE + 1), False]


def test_settling_is_rounded_up_to_whole_steps() -> None:
    """A look each minute and a half: 4 min are three looks, not two."""
    found = phases({WRITES: written(6, n1=MANY)}, groups(6, on("a", "n1")), 90, NUMBERS)["save"]
    assert found[:, 0].tolist() == [True] * 4 + [False] * 2


def test_a_job_is_starting_for_as_long_as_the_policy_says() -> None:
    mine = groups(3, on("a", "n1", start=STEP - NUMBERS.start), on("b", "n2", start=0))
    found = phases({}, mine, STEP, NUMBERS)["start"]
    assert found[:, 0].tolist() == [True, False, False]
    assert found[:, 1].tolist() == [True, True, True]
    assert not found[:, 2].any(), "no job, no start"


def test_a_boot_is_told_by_the_uptime() -> None:
    values = written(1, n1=NUMBERS.boot - 1, n2=NUMBERS.boot, n3=math.nan)
    values[0, 3:] = 1e6
    assert row(phases({UPTIME: values}, groups(1), STEP, NUMBERS)["boot"], 0) == ["n1"]


def test_what_is_not_measured_tells_of_no_phase() -> None:
    found = phases({}, groups(2, on("a", *NODES)), STEP, NUMBERS)
    assert {name: bool(flags.any()) for name, flags in found.items()} == dict.fromkeys(found, False)


@pytest.mark.parametrize("name", ["idle", "start", "save", "load", "boot"])
def test_every_phase_that_a_signal_can_name_is_told(name: str) -> None:
    found = phases({}, groups(2), STEP, NUMBERS)
    assert name in found and found[name].shape == (2, len(NODES))


# -- muted -------------------------------------------------------------------------------------------------------------


def judged(
    signal: str, values: list[float], *, writes: float = 0.0, frozen: float = 0.0, age: int = 10**5
) -> list[str]:
    """The states of a shipped signal on five nodes of one run, after it has been so for the whole window."""
    rows = 61
    shown = (POLICY.signals[signal], POLICY.signals[WRITES], POLICY.signals["dcgm_frozen"])
    cells = np.array([values, [writes] * 5, [frozen] * 5], dtype=np.float64)[:, None, :].repeat(rows, axis=1)
    times = T0 + STEP * np.arange(rows)
    mine = Groups.of([Stay("a", NODES, int(times[-1]) - age)], times, NODES)
    window = Window(shown, NODES, times, cells, np.full(5, 8.0), np.full(5, True), mine)
    found = score(window, POLICY)
    told = zip(found.bad[0, -1], np.isnan(found.evidence[0, -1]), strict=True)
    return ["bad" if bad else "unknown" if unknown else "good" for bad, unknown in told]


POWER = [900.0, 900.0, 900.0, 900.0, 200.0]  # W


def test_a_signal_says_nothing_in_the_phases_that_it_names() -> None:
    assert judged("gpu_power", POWER) == ["good"] * 4 + ["bad"]
    assert judged("gpu_power", POWER, writes=MANY) == ["unknown"] * 5
    assert judged("gpu_power", POWER, age=NUMBERS.start - 60) == ["unknown"] * 5


def test_a_signal_that_does_not_name_the_save_speaks_in_it() -> None:
    assert judged("row_remap_failure", [0, 0, 0, 0, 1], writes=MANY) == ["good"] * 4 + ["bad"]
    assert judged("gpu_temperature", [50, 50, 50, 50, 90], writes=MANY) == ["good"] * 4 + ["bad"]


def test_what_a_frozen_exporter_shows_is_not_compared_but_still_counted() -> None:
    assert judged("gpu_power", POWER, frozen=1) == ["unknown"] * 5
    assert judged("row_remap_failure", [0, 0, 0, 0, 1], frozen=1) == ["good"] * 4 + ["bad"]
