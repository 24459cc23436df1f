"""Whether a run moves, by what its nodes show together; and what is remembered of it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
import pytest

from bot import policy as policies
from bot.model import Checkpoint, Pace, Progress, Session
from bot.paces import paced
from bot.signals.peers import Groups, Stay
from bot.signals.progress import ProgressRows
from bot.signals.score import Window, look_back, score
from tests.unit.test_observe import NOW, Eyes

POLICY = policies.build()
NUMBERS = POLICY.numbers.progress
STEP, MINUTE = 15, 60
T0 = 1_800_000_000
NODES = tuple(f"node-{i:02d}" for i in range(1, 9))
LONG = 40 * MINUTE
END = T0 + LONG


@dataclass
class Metrics:
    """40 min of a run on eight nodes that began long before; `at` gives minutes before the end."""

    nodes: tuple[str, ...] = NODES
    start: int = T0 - 3600
    values: dict[str, np.ndarray] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.times = np.arange(T0, END + 1, STEP)
        working = {"tensor_busiest": 0.6, "tensor_activity": 0.4, "fabric_bytes": 2e9, "gpu_utilisation": 100.0}
        for name, value in working.items():
            self.values[name] = np.full((len(self.times), len(self.nodes)), value)

    def set(self, name: str, value: float, last: int, until: int = 0, node: int | None = None) -> None:
        """From `last` minutes before the end, for one node or all of them."""
        table = self.values.setdefault(name, np.full((len(self.times), len(self.nodes)), np.nan))
        rows = (self.times > END - last * MINUTE) & (self.times <= END - until * MINUTE)
        table[rows, slice(None) if node is None else node] = value

    def hang(self, last: int, until: int = 0) -> None:
        for name in ("tensor_busiest", "tensor_activity", "fabric_bytes"):
            self.set(name, 0, last, until)

    def rows(self) -> ProgressRows:
        stays = [Stay("123#0", self.nodes, self.start)]
        shape = (len(self.times), len(self.nodes))
        table = np.stack([self.values.get(name, np.full(shape, np.nan)) for name in POLICY.signals])
        seen = Window(
            tuple(POLICY.signals.values()),
            self.nodes,
            self.times,
            table,
            np.full(len(self.nodes), 8.0),
            np.ones(len(self.nodes), dtype=bool),
            Groups.of(stays, self.times, self.nodes),
        )
        return ProgressRows(score(seen, POLICY), stays, POLICY)

    def now(self) -> Progress:
        (progress,) = self.rows().at(len(self.times) - 1)
        return progress


def test_a_run_that_works_moves_and_has_a_level() -> None:
    seen = Metrics().now()
    assert seen.idle_since is None and seen.moves == ("fabric_bytes", "tensor_busiest")
    assert (seen.level, seen.level_of) == (0.4, "activity")


def test_a_hang_is_seen_since_when_and_by_what_though_gpu_use_stays_full() -> None:
    metrics = Metrics()
    metrics.hang(5)
    metrics.set("gpu_power", 310, 40)
    seen = metrics.now()
    assert seen.idle_since == END - 5 * MINUTE + STEP
    assert seen.by == ("tensor_busiest", "fabric_bytes")
    assert [name for name, _ in seen.signs] == ["tensor_busiest", "fabric_bytes", "gpu_utilisation", "gpu_power"]
    assert any("stays at 100 %" in text for _, text in seen.signs)


def test_a_run_that_waits_for_its_storage_says_so() -> None:
    metrics = Metrics()
    metrics.hang(5)
    metrics.set("getattr_latency", 3.0, 40)
    assert "getattr_latency" not in dict(metrics.now().signs)
    metrics.set("getattr_latency", 2300.0, 5)
    assert dict(metrics.now().signs)["getattr_latency"] == "its storage is slow: a GETATTR takes 2.3 s"


def test_one_gpu_that_works_is_an_evaluation_and_no_hang() -> None:
    metrics = Metrics()
    metrics.hang(10)
    metrics.set("tensor_busiest", 0.2, 10, node=3)
    assert metrics.now().idle_since is None


def test_traffic_on_the_fabric_is_movement() -> None:
    metrics = Metrics()
    metrics.hang(10)
    metrics.set("fabric_bytes", 3e8, 10, node=0)
    assert metrics.now().idle_since is None


@pytest.mark.parametrize("what", ["gone", "frozen"])
def test_what_nobody_can_read_is_neither_idle_nor_slow(what: str) -> None:
    metrics = Metrics()
    if what == "gone":
        for name in metrics.values:
            metrics.set(name, np.nan, 40)
    else:
        metrics.hang(40)
        metrics.set("dcgm_frozen", 1, 40)
        metrics.set("node_frozen", 1, 40)
    seen = metrics.now()
    assert not seen.measured and seen.idle_since is None and seen.level is None and seen.moves == ()


def test_a_node_that_went_dark_does_not_hide_that_the_others_stand_still() -> None:
    metrics = Metrics()
    metrics.hang(6)
    for name in metrics.values:
        metrics.set(name, np.nan, 6, node=7)
    assert metrics.now().idle_since is not None


def test_half_of_the_nodes_dark_and_nobody_knows() -> None:
    metrics = Metrics()
    metrics.hang(9)
    for name in metrics.values:
        for node in range(4):
            metrics.set(name, np.nan, 9, node=node)
    assert metrics.now().idle_since is None


@pytest.mark.parametrize("signal", ["storage_write", "storage_read"])
def test_a_save_or_a_load_is_a_phase_and_no_standstill(signal: str) -> None:
    metrics = Metrics()
    metrics.hang(10)
    metrics.set(signal, 500e6, 10)
    seen = metrics.now()
    assert seen.phase in ("save", "load") and seen.idle_since is None and seen.level is None


def test_the_standstill_counts_from_the_end_of_the_phase() -> None:
    metrics = Metrics()
    metrics.hang(12)
    metrics.set("storage_write", 500e6, 12, until=8)
    settled = 8 * MINUTE - POLICY.numbers.phases.settle
    assert metrics.now().idle_since == pytest.approx(END - settled, abs=2 * STEP)


def test_the_start_of_an_attempt_is_a_phase() -> None:
    metrics = Metrics(start=END - 5 * MINUTE)
    metrics.hang(5)
    assert metrics.now().phase == "start"


def test_a_run_of_one_node_is_not_judged_by_the_fabric() -> None:
    metrics = Metrics(nodes=("node-01",))
    metrics.set("fabric_bytes", 0, 40)
    assert metrics.now().idle_since is None
    metrics.hang(6)
    assert metrics.now().by == ("tensor_busiest",)


def test_gpus_whose_power_swings_do_something() -> None:
    metrics = Metrics()
    metrics.hang(10)
    metrics.values["gpu_power"] = np.where(np.arange(len(metrics.times)) % 3 == 0, 500.0, 250.0)[:, None].repeat(8, 1)
    assert metrics.now().idle_since is None


def test_the_trainers_step_tells_the_pace_and_the_standstill() -> None:
    metrics = Metrics()
    steps = np.minimum(np.arange(len(metrics.times)) // 2, 10**6).astype(float)  # two a minute
    metrics.values["train_step"] = np.full((len(steps), 8), np.nan)
    metrics.values["train_step"][:, 0] = steps
    assert (metrics.now().level, metrics.now().level_of) == (2.0, "steps")
    metrics.hang(6)
    metrics.set("train_step", 68, 6, node=0)
    seen = metrics.now()
    assert "train_step" in seen.by and any("step stays at 68" in text for _, text in seen.signs)


def test_the_one_node_that_stands_out_is_named() -> None:
    metrics = Metrics()
    metrics.set("sm_clock", 1980, 40)
    metrics.set("sm_clock", 900, 30, node=6)
    seen = metrics.now()
    assert seen.straggler == "node-07" and "900 MHz, 1980 MHz on its peers" in seen.straggler_why


def test_the_node_for_which_collectives_wait_is_named_by_nccl() -> None:
    metrics = Metrics()
    metrics.set("collective_time", 9500, 40)
    metrics.set("collective_time", 700, 30, node=2)
    assert metrics.now().straggler == "node-03"


def test_of_two_that_stand_out_alike_neither_is() -> None:
    metrics = Metrics()
    metrics.set("sm_clock", 1980, 40)
    for node in (1, 5):
        metrics.set("sm_clock", 900, 30, node=node)
    assert metrics.now().straggler == ""


def test_any_split_of_the_time_axis_tells_the_same() -> None:
    metrics = Metrics()
    metrics.set("sm_clock", 1980, 40)
    metrics.set("storage_write", 500e6, 25, until=22)
    metrics.hang(6)
    whole = metrics.rows()
    back = look_back(POLICY) // STEP
    for row in range(back, len(metrics.times), 7):
        part = replace_times(metrics, row - back, row + 1)
        assert part.rows().at(back) == whole.at(row)


def replace_times(metrics: Metrics, first: int, last: int) -> Metrics:
    part = Metrics(metrics.nodes, metrics.start)
    part.times = metrics.times[first:last]
    part.values = {name: table[first:last] for name, table in metrics.values.items()}
    return part


def test_a_live_look_tells_of_the_runs_that_must_be_looked_after() -> None:
    eyes = Eyes()
    for job in ("9041", "77"):
        eyes.scheduler.submit(job, 1)
    eyes.scheduler.turn(NOW - 3600)
    eyes.tells("tensor_busiest", node_01=0.5, node_02=0.5)
    (seen,) = eyes.look().progress
    assert seen.run == "9041#0" and "tensor_busiest" in seen.moves


# -- what is remembered ------------------------------------------------------------------------------------------------


class Run:
    """A session whose looks are given one by one."""

    def __init__(self) -> None:
        self.session = Session("c/123@0", "session-123", "c", ("123",), "train", "u", "xidbot", 0)
        self.at = T0

    def look(self, minutes: float, excuse: str = "", **facts: object) -> Pace:
        self.at += int(minutes * MINUTE)
        seen = Progress("123#0", age=self.at - T0 + 3600, measured=True, **facts)  # type: ignore[arg-type]
        self.session = replace(self.session, pace=paced(self.session, seen, excuse, self.at, NUMBERS))
        assert self.session.pace
        return self.session.pace

    def works(self, minutes: float, level: float = 0.4) -> Pace:
        soon = self.at + int(minutes * MINUTE)
        return self.look(minutes, moves=("tensor_busiest",), moved_at=soon, level=level, level_of="activity")

    def stands(self, minutes: float, since: int, excuse: str = "") -> Pace:
        return self.look(minutes, excuse, idle_since=since, by=("tensor_busiest",))


def test_the_same_look_again_changes_nothing() -> None:
    run = Run()
    first = run.works(1)
    assert run.works(0) == first and first.usual == 0.4


def test_the_usual_level_follows_slowly_and_a_slow_spell_does_not_move_it() -> None:
    run = Run()
    run.works(1)
    for _ in range(30):
        pace = run.works(5, 0.2)
    assert pace.usual == 0.4 and pace.slow_since == T0 + 6 * MINUTE
    assert run.works(5, 0.4).slow_since is None
    for _ in range(4):
        pace = run.works(30, 0.5)
    assert pace.usual == pytest.approx(0.47, abs=0.01)


def test_a_level_that_nobody_mended_is_the_usual_one_after_hours() -> None:
    run = Run()
    run.works(1)
    for _ in range(80):
        pace = run.works(5, 0.2)
    assert pace.usual == 0.2 and pace.slow_since is None


def test_a_pause_that_it_got_out_of_is_remembered_but_not_beyond_measure() -> None:
    run = Run()
    run.works(1)
    run.stands(12, run.at + MINUTE)
    assert run.works(1).pause == 12 * MINUTE
    run.stands(300, run.at + MINUTE)
    assert run.works(1).pause == NUMBERS.pause_most


def test_what_stood_still_while_something_explained_it_does_not_count() -> None:
    run = Run()
    run.works(1)
    run.stands(9, run.at, "storage stall")
    ended = run.stands(1, T0).counts_from
    assert ended == run.at
    assert run.stands(1, T0).idle_since is None
    assert run.stands(5, T0).idle_since == ended


def test_a_save_that_was_completed_is_progress() -> None:
    run = Run()
    run.works(1)
    run.stands(8, run.at)
    saved = run.at + 30
    run.session = replace(run.session, checkpoint=Checkpoint("123", 5, None, saved))
    assert run.stands(1, T0 + MINUTE).idle_since is None
    assert run.stands(5, T0 + MINUTE).idle_since == saved


def test_another_attempt_has_not_moved_yet_but_its_usual_level_is_known() -> None:
    run = Run()
    run.works(1)
    seen = Progress("123#1", age=60, measured=True)
    pace = paced(run.session, seen, "start", run.at + 60, NUMBERS)
    assert (pace.attempt, pace.moved, pace.usual) == ("123#1", (), 0.4)
