"""PromQL's arithmetic on minutes, against numbers worked out by hand from Prometheus's rules."""

from __future__ import annotations

import numpy as np
import pytest

from bot.sandbox.recording import promql
from bot.sandbox.recording.counters import storage_window
from bot.sandbox.recording.recording import Recording
from bot.sandbox.recording.storage import SLOTS

NAN = float("nan")


def column(*values: float) -> np.typing.NDArray[np.float64]:
    return np.array(values, dtype=np.float64)[:, None]


@pytest.mark.parametrize(
    ("values", "shown"),
    [
        ((7, NAN, NAN, NAN, NAN, NAN), 7),  # five minutes old: it still stands
        ((7, NAN, NAN, NAN, NAN, NAN, NAN), NAN),
        ((7, 8, NAN), 8),
    ],
)
def test_a_missing_sample_is_stood_in_for_for_five_minutes(values: tuple[float, ...], shown: float) -> None:
    padded = column(*[NAN] * (8 - len(values)), *values)
    np.testing.assert_equal(promql.instant(padded, 1)[0, 0], shown)


@pytest.mark.parametrize(
    ("values", "grown"),
    [
        ((0, 10, 20, 30), 30),  # the whole window is sampled
        ((100, 110, 5, 15), 25),  # it began anew: 10, then 5 from zero, then 10
        ((NAN, 10, 20, 30), 30),  # from 10 the slope reaches zero at the window's edge
        ((NAN, 5, 20, 35), 35),  # zero comes first: no further than there
        ((10, 20, NAN, NAN), 15),  # half a minute beyond the last sample, which is more than 1.1 min away
        ((NAN, NAN, NAN, 30), NAN),  # one sample tells of no growth
    ],
)
def test_increase_over_three_minutes(values: tuple[float, ...], grown: float) -> None:
    np.testing.assert_allclose(promql.increase(column(*values), 1, 3)[0, 0], grown)


def test_quantiles_lie_between_samples_and_ignore_missing_ones() -> None:
    assert promql.quantile(column(0, 10, NAN, 20), 1, 3, 0.25)[0, 0] == 5
    assert np.isnan(promql.quantile(column(NAN, NAN, NAN, NAN), 1, 3, 0.1)[0, 0])


def test_changes_are_counted_between_samples_of_the_window() -> None:
    assert promql.changes(column(1, 2, NAN, 2, 3), 1, 4)[0, 0] == 2
    assert promql.changes(column(1, 2, 2, 2), 1, 2)[0, 0] == 0, "the step before the window does not count"


def test_extremes_and_means_are_of_the_samples_that_there_are() -> None:
    values = column(9, 1, NAN, 4)
    assert (promql.least(values, 1, 2)[0, 0], promql.most(values, 1, 2)[0, 0]) == (1, 4)
    assert promql.mean(values, 1, 2)[0, 0] == 2.5


def test_full_slots_show_a_flat_round_trip_and_a_long_queue() -> None:
    """What the study saw: 93 % of the time of a WRITE is spent in the client's queue."""
    recordings = (Recording(seed, days=3, nodes=6) for seed in range(1, 60))
    recording, stall = next((r, s) for r in recordings for s in r.storage_labels if s.verdict == "client_slots")
    start = -(-stall.start // 60) * 60
    window = storage_window(recording, start, start + 240)
    busy = next(run for run in recording.runs if run.start < start < (run.end or start + 1) and len(run.nodes) > 1)
    nodes = [window.nodes.index(name) for name in busy.nodes]
    grown = {what: np.diff(window.counters[what, "WRITE"][:, nodes, 0], axis=0)[1:] for what in
             ("requests", "queue_time_seconds", "response_time_seconds", "request_time_seconds")}  # fmt: skip
    np.testing.assert_allclose(grown["response_time_seconds"] / 60, SLOTS, rtol=0.5)
    assert (grown["queue_time_seconds"] / grown["request_time_seconds"] > 0.85).all()
    assert (grown["response_time_seconds"] / grown["requests"] < 0.08).all()
