"""What one look makes of sources that answer, fail, or answer half."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pytest

from bot import policy as policies
from bot.errors import AuthFailed, BadReply, SourceError, Unreachable
from bot.model import Checkpoint, Observation, Reading, SourceState
from bot.observe import LiveObserver
from bot.policy import Policy, Signal
from bot.ports import Matrix
from bot.schedulers.simulated import SimulatedScheduler
from bot.signals.score import look_back

STEP, LAG, WINDOW = 15, 30, 900
NOW = 1_800_000_007  # not on the grid of the step
AT = NOW - 37
POLICY = policies.build()


@dataclass
class Metrics:
    """Per signal and host one value at all times, or a row of the newest ones; an exception is raised."""

    told: dict[str, dict[str, float | list[float]] | SourceError] = field(default_factory=dict)
    asked: list[tuple[str, int, int, int]] = field(default_factory=list)

    def matrix(self, signal: Signal, start: int, end: int, step: int, nodes: Collection[str]) -> Matrix:
        self.asked.append((signal.id, start, end, step))
        told = self.told.get(signal.id, {})
        if isinstance(told, SourceError):
            raise told
        times = np.arange(start, end + 1, step)
        values = np.full((len(times), len(told)), np.nan)
        for i, value in enumerate(told.values()):
            rows = value if isinstance(value, list) else [value] * len(times)
            values[len(times) - len(rows) :, i] = rows
        return Matrix(tuple(told), tuple(host in nodes for host in told), times, values)


@dataclass
class Saves:
    told: Sequence[Checkpoint] | SourceError = ()
    asked: list[tuple[int, Mapping[str, Sequence[str]]]] = field(default_factory=list)

    def checkpoints(self, at: int, jobs: Mapping[str, Sequence[str]]) -> Sequence[Checkpoint]:
        self.asked.append((at, jobs))
        if isinstance(self.told, SourceError):
            raise self.told
        return self.told


@dataclass
class Eyes:
    """An observer and all that it looks at: two nodes of eight GPUs, all well."""

    policy: Policy = POLICY
    metrics: Metrics = field(default_factory=Metrics)
    scheduler: SimulatedScheduler = field(default_factory=SimulatedScheduler)
    saves: Saves = field(default_factory=Saves)

    def __post_init__(self) -> None:
        self.scheduler.add_nodes(["node-01", "node-02"])
        for name, signal in self.policy.signals.items():
            well = {"missing": 8.0, "gone": 8.0, "context": 1e6}.get(signal.evidence.kind, 0.0)
            self.metrics.told[name] = {"node-01": well, "node-02": well}
        jobs = {"9041": ("9041", "train")}
        self.observer = LiveObserver(self.metrics, self.scheduler, self.saves, self.policy, lambda: jobs)

    def look(self, now: int = NOW) -> Observation:
        return self.observer.observe(now)

    def tells(self, signal: str, **hosts: float | list[float]) -> None:
        told = self.metrics.told[signal]
        assert not isinstance(told, SourceError)
        self.metrics.told[signal] = {**told, **{host.replace("_", "-"): value for host, value in hosts.items()}}


def reading(seen: Observation, node: str, signal: str) -> Reading:
    return next(r for r in seen.readings if (r.node, r.signal) == (node, signal))


def problems(seen: Observation) -> dict[str, str]:
    return {source.name: source.problem for source in seen.sources}


WELL = {"scheduler": "", "prometheus": ""}


# -- all is well -------------------------------------------------------------------------------------------------------


def test_one_look_sees_everything() -> None:
    eyes = Eyes(saves=Saves([Checkpoint("9041", 5, None, AT)]))
    seen = eyes.look()
    assert (seen.at, seen.now) == (AT, NOW) and AT % STEP == 0
    assert seen.cluster and set(seen.cluster.nodes) == {"node-01", "node-02"}
    assert seen.scores and {n: (s.score, s.hard, s.known) for n, s in seen.scores.items()} == {
        "node-01": (0.0, False, True),
        "node-02": (0.0, False, True),
    }
    judged = {name for name, signal in POLICY.signals.items() if signal.evidence.kind != "context"}
    assert sorted(r.signal for r in seen.readings) == sorted([*judged, *judged])
    told_by_logs = {name for name in judged if not POLICY.signals[name].query} - {"health_check"}
    untold = told_by_logs | {"dcgm_frozen"}
    assert {r.signal for r in seen.readings if r.state == "unknown"} == untold, "no log is read, nothing runs"
    assert {r.state for r in seen.readings if r.signal not in untold} == {"good"}
    assert seen.checkpoints == (Checkpoint("9041", 5, None, AT),)
    assert problems(seen) == WELL
    assert eyes.saves.asked == [(AT, {"9041": ("9041", "train")})]


def test_each_signal_is_asked_once_over_the_window() -> None:
    eyes = Eyes()
    eyes.look()
    with_query = [name for name, signal in POLICY.signals.items() if signal.query]
    present = [asked for asked in eyes.metrics.asked if asked[3] == STEP]
    assert sorted(present) == sorted((name, AT - WINDOW, AT, STEP) for name in with_query)


def test_the_past_of_a_run_is_asked_in_coarser_steps_and_only_when_they_move_on() -> None:
    eyes, time = Eyes(), POLICY.numbers.time
    compared = {s.id for s in POLICY.signals.values() if s.evidence.own_past}
    for now in (NOW, NOW + STEP, NOW + time.past_step):
        eyes.look(now)
    past = [asked for asked in eyes.metrics.asked if asked[3] == time.past_step]
    assert {name for name, *_ in past} == compared and len(past) == 2 * len(compared)
    assert {end % time.past_step for _, _, end, _ in past} == {0}
    assert max(end for _, _, end, _ in past[: len(compared)]) <= AT - time.past_to


def test_the_window_reaches_as_far_as_the_longest_persistence() -> None:
    eyes = Eyes(policies.build(policy={"time": {"window": "30s", "step": "7s"}}))
    seen = eyes.look()
    stands = POLICY.numbers.score.open_after
    weighs = [s for s in POLICY.signals.values() if s.query and s.evidence.strength]
    longest = max(s.persistence + s.evidence.lasts + stands for s in weighs)
    starts = {start for _, start, _, step in eyes.metrics.asked if step == 7}
    assert starts == {seen.at - 7 * math.ceil(longest / 7)} == {seen.at - look_back(eyes.policy)}
    assert seen.at % 7 == 0


def test_a_fault_is_seen_with_its_reasons() -> None:
    eyes = Eyes()
    eyes.tells("xid_reboot", node_01=[0, 79, 0])
    eyes.tells("gpu_missing", node_01=7)
    seen = eyes.look()
    assert seen.scores is not None
    bad = seen.scores["node-01"]
    assert bad.hard and bad.score == 1.0
    assert [(r.signal, r.evidence) for r in bad.reasons] == [("xid_reboot", 1.0), ("gpu_missing", 0.95)]
    assert bad.reasons[0].since == AT - STEP
    assert bad.reasons[1].text == "GPU count 7 of 8 while the exporter is up"
    assert seen.scores["node-02"].score == 0.0


def test_soft_evidence_tells_how_long_it_has_stood() -> None:
    eyes = Eyes()
    eyes.tells("uncorrectable_remap", node_01=[0.0] * 10 + [1.0] * 21)
    seen = eyes.look()
    assert seen.scores and seen.scores["node-01"].score == 0.75
    assert seen.scores["node-01"].soft_for == 240, "from when it had persisted for a minute"


# -- expected GPUs -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("scheduler", "site", "state"),
    [(8, None, "bad"), (4, None, "good"), (None, None, "unknown"), (8, 4, "good"), (None, 8, "bad"), (0, None, "good")],
)
def test_the_site_knows_better_than_the_scheduler(scheduler: int | None, site: int | None, state: str) -> None:
    eyes = Eyes(policies.build(gpus={"node-01": site} if site is not None else {}))
    eyes.scheduler.nodes["node-01"] = replace(eyes.scheduler.nodes["node-01"], gpus=scheduler)
    eyes.tells("gpu_missing", node_01=4)
    assert reading(eyes.look(), "node-01", "gpu_missing").state == state


def test_a_node_that_should_have_gpus_is_unknown_until_something_is_told() -> None:
    eyes = Eyes()
    eyes.scheduler.add_nodes(["node-03"])
    eyes.scheduler.nodes["login"] = replace(eyes.scheduler.nodes["node-01"], name="login", gpus=0)
    seen = eyes.look()
    measured = [r for r in seen.readings if r.signal != "health_check"]
    assert {r.state for r in measured if r.node == "node-03"} == {"unknown"}
    assert seen.scores is not None and "node-03" not in seen.scores
    assert not [r for r in seen.readings if r.node == "login"], "a node without GPUs has no GPU telemetry to miss"


def test_a_stranger_is_shown_and_known_to_be_one() -> None:
    eyes = Eyes()
    eyes.metrics.told["xid_reboot"] = {"pod-42gcj": 79.0}
    seen = eyes.look()
    assert seen.scores is not None
    assert (seen.scores["pod-42gcj"].hard, seen.scores["pod-42gcj"].known) == (True, False)
    assert reading(seen, "pod-42gcj", "gpu_missing").state == "unknown"


# -- what fails --------------------------------------------------------------------------------------------------------


def test_no_metrics_are_no_scores() -> None:
    eyes = Eyes()
    eyes.metrics.told = dict.fromkeys(POLICY.signals, AuthFailed("prometheus", "HTTP 401: no", "check the token"))
    seen = eyes.look()
    assert seen.scores is None and seen.readings == () and seen.cluster is not None
    assert problems(seen) == {"scheduler": "", "prometheus": "HTTP 401: no (check the token)"}


def test_once_nothing_answers_the_rest_is_not_asked() -> None:
    eyes = Eyes()
    eyes.metrics.told = dict.fromkeys(POLICY.signals, Unreachable("prometheus", "no whole answer within 10 s"))
    seen = eyes.look()
    assert problems(seen)["prometheus"] == "no whole answer within 10 s"
    assert len(eyes.metrics.asked) <= 4, "those that were under way"


def test_one_failing_signal_is_unknown_everywhere_and_the_others_are_judged() -> None:
    eyes = Eyes()
    eyes.tells("xid_reboot", node_01=79)
    eyes.metrics.told["dbe"] = BadReply("prometheus", "bad_data: parse error")
    seen = eyes.look()
    assert problems(seen)["prometheus"] == "dbe: bad_data: parse error"
    assert {reading(seen, node, "dbe").state for node in ("node-01", "node-02")} == {"unknown"}
    assert seen.scores is not None and seen.scores["node-01"].hard


def test_signals_that_fail_alike_are_told_once() -> None:
    eyes = Eyes()
    for name in ("dbe", "xid_test"):
        eyes.metrics.told[name] = BadReply("prometheus", "partial data: store 7")
    assert problems(eyes.look())["prometheus"] == "xid_test, dbe: partial data: store 7"


def test_without_the_scheduler_scores_are_still_made() -> None:
    """Of the nodes that it last told of; at first there are none, and every host is a stranger."""
    eyes = Eyes()
    eyes.scheduler.broken = "slurm_load_jobs error: Unable to contact slurm controller"
    eyes.tells("xid_reboot", node_01=79)
    blind = eyes.look()
    assert blind.cluster is None and problems(blind)["scheduler"] == eyes.scheduler.broken
    assert blind.scores is not None and not blind.scores["node-01"].known

    eyes.scheduler.broken = ""
    eyes.look(NOW + STEP)
    eyes.scheduler.broken = "away again"
    seen = eyes.look(NOW + 2 * STEP)
    assert seen.cluster is None and seen.scores is not None
    assert seen.scores["node-01"].known and reading(seen, "node-02", "gpu_missing").state == "good"


def test_checkpoints_that_cannot_be_read_are_a_problem_and_not_none_made() -> None:
    seen = Eyes(saves=Saves(BadReply("prometheus", "execution: no"))).look()
    assert seen.checkpoints == () and SourceState("prometheus", "execution: no") in seen.sources


# -- asked twice -------------------------------------------------------------------------------------------------------


def test_metrics_of_a_moment_are_fetched_once_the_scheduler_is_asked_anew() -> None:
    eyes = Eyes()
    first = eyes.look()
    eyes.scheduler.broken = "gone"
    second = eyes.look(NOW + 1)
    assert (first.at, first.scores) == (second.at, second.scores)
    assert first.cluster is not None and second.cluster is None
    with_query = sum(bool(signal.query) for signal in POLICY.signals.values())
    assert sum(step == STEP for *_, step in eyes.metrics.asked) == with_query
    eyes.look(NOW + STEP)
    assert sum(step == STEP for *_, step in eyes.metrics.asked) == 2 * with_query


def test_what_failed_is_fetched_again() -> None:
    eyes = Eyes()
    eyes.metrics.told["dbe"] = BadReply("prometheus", "oops")
    assert problems(eyes.look()) != WELL
    eyes.metrics.told["dbe"] = {"node-01": 0.0, "node-02": 0.0}
    assert problems(eyes.look()) == WELL


# -- details -----------------------------------------------------------------------------------------------------------


@dataclass
class Details:
    """What is told of a signal at a moment."""

    told: dict[tuple[str, int], dict[str, str]]
    asked: list[tuple[str, int]] = field(default_factory=list)
    broken: bool = False

    def __call__(self, signal: Signal, at: int, nodes: Collection[str]) -> Mapping[str, str]:
        self.asked.append((signal.id, at))
        if self.broken:
            raise Unreachable("prometheus", "away")
        return self.told.get((signal.id, at), {})


def test_the_gpu_is_asked_for_once_a_reading_turns_bad() -> None:
    eyes = Eyes()
    details = Details({("xid_reboot", AT): {"node-01": "Xid 79 on GPU 3"}})
    eyes.observer.details = details
    eyes.tells("xid_reboot", node_01=[0, 79])
    for now in (NOW, NOW + STEP):
        seen = eyes.look(now)
        assert reading(seen, "node-01", "xid_reboot").text == "Xid 79 on GPU 3"
        assert seen.scores is not None and seen.scores["node-01"].reasons[0].text == "Xid 79 on GPU 3"
    assert details.asked == [("xid_reboot", AT)]
    eyes.tells("xid_reboot", node_01=0)
    assert reading(eyes.look(NOW + 2 * STEP), "node-01", "xid_reboot").text == ""


def test_what_has_passed_is_asked_for_when_it_began() -> None:
    eyes = Eyes()
    details = Details({("xid_reboot", AT - STEP): {"node-01": "Xid 79 on GPU 3"}})
    eyes.observer.details = details
    eyes.tells("xid_reboot", node_01=[0, 79, 0])
    assert reading(eyes.look(), "node-01", "xid_reboot").text == "Xid 79 on GPU 3"
    assert details.asked == [("xid_reboot", AT), ("xid_reboot", AT - STEP)]


def test_an_incident_does_not_wait_for_details() -> None:
    eyes = Eyes()
    eyes.observer.details = Details({}, broken=True)
    eyes.tells("xid_reboot", node_01=79)
    seen = eyes.look()
    assert reading(seen, "node-01", "xid_reboot").text == "Xid 79 (GPU has fallen off the bus)"
    assert problems(seen) == WELL


def test_the_past_fits_the_window_whatever_a_sites_steps_are() -> None:
    eyes = Eyes(policies.build(policy={"time": {"window": "17m", "past_step": "7m"}}))
    for look in range(40):
        assert eyes.look(NOW + look * STEP).scores is not None
