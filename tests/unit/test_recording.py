"""The recording: what happens in it, what its samples show of that, and that it is the same each time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest

from bot.errors import BadReply, UsageError
from bot.sandbox.parts import demo_policy
from bot.sandbox.recording import Recording
from bot.sandbox.recording.families import FAMILIES
from bot.sandbox.recording.fleet import DAY, GPUS, ROWS, hostlist
from bot.sandbox.recording.memory import RecordedCheckpoints, RecordedMetrics
from bot.sandbox.recording.truth import Failure
from bot.slurm_records import parse_hostlist

MINUTE, HOUR = 60, 3600
SEEDS = range(1, 6)
SIGNALS = demo_policy().signals


@pytest.fixture(scope="module")
def small() -> Recording:
    return Recording(4, days=3, nodes=6)


# -- the story ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", SEEDS)
def test_55_days_hold_ten_failures_with_an_xid_and_seven_without(seed: int) -> None:
    recording = Recording(seed)
    assert Counter(label.xid is not None for label in recording.labels) == {True: 10, False: 7}
    assert len({label.node for label in recording.labels}) < 17, "some nodes fail again"


@pytest.mark.parametrize("seed", SEEDS)
def test_a_node_fails_in_a_run_and_runs_nothing_until_it_is_back(seed: int) -> None:
    recording = Recording(seed, days=20, nodes=24)
    for label in recording.labels:
        mine = [run for run in recording.runs if label.node in run.nodes]
        assert sum(run.start <= label.start < (run.end or recording.end) for run in mine) == 1
        assert not [run for run in mine if label.start < run.start < (label.end or 0)]


@pytest.mark.parametrize("seed", SEEDS)
def test_a_node_runs_one_job_at_a_time(seed: int) -> None:
    recording = Recording(seed, days=20, nodes=24)
    for node in recording.fleet.names:
        mine = [run for run in recording.runs if node in run.nodes]
        assert all((before.end or recording.end) <= after.start for before, after in zip(mine, mine[1:], strict=False))


def test_application_faults_are_no_failures() -> None:
    recording = Recording(1)
    assert {fault.xid for fault in recording.application} <= {13, 31, 43, 45}
    assert not {label.xid for label in recording.labels} & {13, 31, 43, 45}


def test_over_some_seeds_every_shape_and_every_verdict_comes() -> None:
    recordings = [Recording(seed) for seed in range(1, 13)]
    assert len({failure.shape for r in recordings for failure in r.failures}) == 12
    assert len({label.verdict for r in recordings for label in r.storage_labels}) == 6


@pytest.mark.parametrize(("days", "nodes", "start"), [(0, 63, 0), (2, 3, 0), (2, 8, 60)])
def test_what_cannot_be_recorded_is_refused(days: int, nodes: int, start: int) -> None:
    with pytest.raises(UsageError):
        Recording(1, days, nodes, start)


@pytest.mark.parametrize("names", ["node-01", "node-[01-03]", "node-[02,07-09,63]", "node-[01,03]"])
def test_host_lists_are_slurms(names: str) -> None:
    assert hostlist(parse_hostlist(names)) == names


# -- the samples -------------------------------------------------------------------------------------------------------


def everything(recording: Recording, day: int) -> dict[tuple[str, str], bytes]:
    return {(name, str(labels[:1])): values.tobytes() for name, _, labels, values in recording.day(day)}


def test_the_same_seed_makes_the_same_samples_in_any_order(small: Recording) -> None:
    again = Recording(4, days=3, nodes=6)
    late = everything(again, 2)
    assert everything(small, 0) == everything(again, 0) and everything(small, 2) == late
    assert everything(Recording(5, days=3, nodes=6), 0) != everything(small, 0)


def test_counters_fall_only_where_something_began_anew(small: Recording) -> None:
    began = {(node, at) for at, node, _ in small.story.effects.restarts}
    for name, family in FAMILIES.items():
        if not family.counter:
            continue
        values = np.concatenate([small.samples.day(name, day) for day in range(small.days)])
        for row, column in zip(*np.nonzero(np.diff(values, axis=0) < 0), strict=True):
            at, node = small.start + (int(row) + 1) * MINUTE, int(column) // family.width
            assert any(who == node and at - MINUTE < when <= at for who, when in began), (name, at, node)


def test_series_of_an_exporter_that_is_down_are_missing_and_up_tells(small: Recording) -> None:
    for part, name in (("dcgm", "DCGM_FI_DEV_GPU_TEMP"), ("node", "node_intr_total")):
        up = np.concatenate([small.samples.up(part, day) for day in range(small.days)])
        values = np.concatenate([small.samples.day(name, day) for day in range(small.days)])
        silent = np.isnan(values.reshape(len(values), len(small.fleet), -1)).all(axis=2)
        assert (up == 0).any() and np.isnan(up).any()
        assert silent[(up == 0) | np.isnan(up)].all()


# -- what failures look like -------------------------------------------------------------------------------------------


def found(shape: str, fits: Callable[[Failure], bool] = lambda failure: True) -> tuple[Recording, Failure]:
    """The first recording that holds the shape well inside a day."""
    for seed in range(1, 400):
        recording = Recording(seed, days=2, nodes=6)
        for failure in recording.failures:
            if failure.shape == shape and fits(failure) and HOUR < failure.start % DAY < DAY - 2 * HOUR:
                return recording, failure
    raise AssertionError(f"no {shape}")


def signal(recording: Recording, name: str, at: int) -> dict[str, float]:
    matrix = RecordedMetrics(recording).matrix(SIGNALS[name], at, at, 60, recording.fleet.names)
    return dict(zip(matrix.hosts, matrix.values[0].tolist(), strict=True))


def minute(at: int) -> int:
    return -(-at // MINUTE) * MINUTE


def test_a_gpu_that_vanishes_takes_its_series_along_and_leaves_no_code() -> None:
    recording, failure = found("vanished")
    at = minute(failure.start) + 6 * MINUTE  # a sample stands in for five minutes
    assert signal(recording, "gpu_missing", at - 12 * MINUTE)[failure.node] == GPUS
    assert signal(recording, "gpu_missing", at)[failure.node] == GPUS - 1
    assert signal(recording, "xid_reboot", at)[failure.node] == 0


def test_an_nvlink_fault_shows_its_xid_on_its_node_alone() -> None:
    recording, failure = found("nvlink", lambda failure: failure.xid in (145, 149))
    name = "xid_test" if failure.xid in (145, 149) else "xid_reset"
    told = {node for node, value in signal(recording, name, minute(failure.start) + MINUTE).items() if value > 0}
    assert told == {failure.node}


def test_memory_that_fails_takes_rows_and_the_hosts_time() -> None:
    recording, failure = found("uncontained")
    at = minute(failure.start) + MINUTE
    assert signal(recording, "uncorrectable_remap", at)[failure.node] >= 1
    latency = signal(recording, "getattr_latency", at + MINUTE)
    assert latency.pop(failure.node) > 2 * max(latency.values())


def test_a_slow_node_is_slower_than_its_peers_and_shows_no_code() -> None:
    recording, failure = found("slow_power")
    at = minute(failure.start) + 20 * MINUTE
    clocks = signal(recording, "sm_clock", at)
    run = next(run for run in recording.runs if failure.node in run.nodes and run.start < at < (run.end or at + 1))
    assert all(clocks[failure.node] < clocks[node] for node in run.nodes if node != failure.node)
    assert signal(recording, "xid_reset", at)[failure.node] == 0


def test_hundreds_of_remaps_come_without_a_code_before_a_gpu_is_gone() -> None:
    recording = next(r for r in map(Recording, SEEDS) if any(f.shape == "vanished_after_remaps" for f in r.failures))
    failure = next(f for f in recording.failures if f.shape == "vanished_after_remaps")
    column = recording.fleet.names.index(failure.node) * GPUS + (failure.gpu or 0)
    rows = recording.samples.day("DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS", (failure.start - recording.start) // DAY - 1)
    assert np.nanmax(rows[:, column]) > 40
    assert not [x for x in recording.story.effects.xids if x.column == column and x.amount not in (13, 31, 43, 45)]


# -- in memory ---------------------------------------------------------------------------------------------------------


def test_a_range_in_parts_is_the_range_as_a_whole(small: Recording) -> None:
    for name in ("interrupts", "correctable_remap_growth", "link_down", "gpu_missing"):
        asked, metrics = SIGNALS[name], RecordedMetrics(small)
        whole = metrics.matrix(asked, small.start, small.end - 60, 60, ()).values
        middle = small.start + DAY + 7 * MINUTE
        parts = [
            metrics.matrix(asked, small.start, middle, 60, ()).values,
            metrics.matrix(asked, middle + 60, small.end - 60, 60, ()).values,
        ]
        np.testing.assert_allclose(np.concatenate(parts), whole, rtol=1e-9, atol=1e-9)


def test_times_between_the_samples_are_refused_and_others_are_unknown(small: Recording) -> None:
    metrics, asked = RecordedMetrics(small), SIGNALS["interrupts"]
    with pytest.raises(BadReply, match="every 60 s"):
        metrics.matrix(asked, small.start + 15, small.start + 75, 15, ())
    outside = metrics.matrix(asked, small.start - HOUR, small.start - 60, 60, ()).values
    own = metrics.matrix(asked.model_copy(update={"id": "own"}), small.start, small.start + HOUR, 60, ()).values
    assert np.isnan(outside).all() and np.isnan(own).all()


def test_the_newest_save_is_the_one_that_was_completed_last(small: Recording) -> None:
    save = small.saves[3]
    told = RecordedCheckpoints(small).checkpoints(save.end, {save.job: (), "1": ()})
    assert [(c.job, c.step) for c in told] == [(save.job, save.step)]
    assert not RecordedCheckpoints(small).checkpoints(small.start - DAY, {save.job: ()})


def test_a_day_has_a_sample_a_minute(small: Recording) -> None:
    assert len(small.times(0)) == ROWS and small.times(1)[0] == small.start + DAY
