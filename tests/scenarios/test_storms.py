"""Many nodes with the same trouble at once: told once, suspected elsewhere, and nothing is taken out for it.

Here the clock is turned by minutes, and a score stands for as long as its oldest reading.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from bot.model import Incident, NodeScore, Reading
from tests.scenarios.world import Eyes, Make, World

SIX = [f"node-{i:02d}" for i in range(1, 7)]
LINK = {"hard": False, "evidence": 0.65, "value": 3.0, "text": "a fabric port went down"}
MEMORY = {"hard": False, "evidence": 0.7, "value": 31.0, "text": "31 remaps in 24 h"}
MINUTE = 60


class Watching(Eyes):
    """Scores that know how long they stand, and what the driver itself reported."""

    events: frozenset[str] = frozenset()
    now = 0

    def _readings(self, now: int) -> Iterator[Reading]:
        yield from (Reading(name, "gpu_missing", "good") for name in self.scheduler.nodes)
        yield from self.readings.values()

    def _scores(self, readings: tuple[Reading, ...]) -> dict[str, NodeScore]:
        return {node: self._timed(score) for node, score in super()._scores(readings).items()}

    def _timed(self, score: NodeScore) -> NodeScore:
        bad = tuple(r for r in score.reasons if r.state == "bad")
        stands = self.now - min((r.since or self.now for r in bad if r.evidence >= 0.6), default=self.now)
        sudden = any(r.signal in self.events for r in bad)
        return NodeScore(score.node, score.score, score.hard, bad, stands, sudden, score.known)


def pass_time(w: World, minutes: int, every: int = 1) -> None:
    for _ in range(minutes // every):
        w.now += every * MINUTE - 15
        assert isinstance(w.eyes, Watching)
        w.eyes.now = w.now + 15
        w.turn()


@pytest.fixture
def running(world: Make) -> Callable[..., World]:
    """A run on node-01…06 of twelve nodes, in a world that may do everything by itself."""

    def make(**facts: object) -> World:
        numbers = {"incidents": {"clean_after": "30m", "precursor_good_after": "2h"}}
        w = world(nodes=12, write_mode="auto", numbers=numbers, **facts)
        w.eyes = Watching(w.scheduler)
        w.eyes.events = frozenset(name for name, s in w.policy.signals.items() if s.evidence.event)
        w.session("123", nodes=6)
        pass_time(w, 2)
        w.save("123", 100)
        return w

    return make


def strike(w: World, nodes: list[str], signal: str = "link_down", facts: dict[str, object] | None = None) -> None:
    for node in nodes:
        w.fault(node, signal, **(LINK if facts is None else facts))


def calm(w: World, nodes: list[str], signal: str = "link_down") -> None:
    for node in nodes:
        w.good(node, signal)


def opened(w: World) -> list[tuple[str, str]]:
    return sorted((i.kind, i.subject) for i in w.state.open_incidents())


def storm(w: World) -> Incident:
    found = w.incident("storm", "fabric")
    assert found is not None
    return found


def test_six_nodes_with_the_same_soft_signal_at_once_are_one_storm(running: Callable[..., World]) -> None:
    w = running()
    strike(w, SIX)
    pass_time(w, 10)
    assert opened(w) == [("storm", "fabric")]
    assert "6 nodes at once" in storm(w).note and "suspect telemetry, a rollout or a shared part" in storm(w).note
    assert {r.signal for r in storm(w).reasons} == {"link_down"}
    assert len(w.events("IncidentOpened")) == 1, "told once"


def test_it_says_which_runs_it_hurts_and_takes_nothing_out(running: Callable[..., World]) -> None:
    w = running()
    strike(w, [*SIX, "node-09"])
    pass_time(w, 15)
    (session,) = w.state.live_sessions()
    assert storm(w).hurt == (session.key,)
    assert w.verbs() == [] and w.plans() == []
    assert not [name for name, node in w.scheduler.nodes.items() if node.holders]


def test_three_nodes_are_no_storm_but_three_warnings(running: Callable[..., World]) -> None:
    w = running()
    strike(w, SIX[:3])
    pass_time(w, 6)
    assert opened(w) == [("precursor", node) for node in SIX[:3]]


def test_one_of_them_with_hard_evidence_of_another_kind_is_a_fault(running: Callable[..., World]) -> None:
    w = running()
    strike(w, SIX)
    pass_time(w, 5)
    w.fault("node-02")
    pass_time(w, 1)
    assert opened(w) == [("gpu_fault", "node-02"), ("storm", "fabric")]
    fault = w.incident("gpu_fault", "node-02")
    assert fault and fault.hard


def test_a_run_that_lost_nodes_in_a_storm_of_hard_evidence_is_told_which(running: Callable[..., World]) -> None:
    """A rack without power: one storm, and a failed run that must not come back to what it left."""
    w = running()
    strike(w, SIX[:4], "xid_reboot", {"text": "Xid 79"})
    w.scheduler.end("123", "NODE_FAIL", "1:0")
    pass_time(w, 3)
    assert opened(w) == [("session_failed", "session-123"), ("storm", "bus")]
    failed = w.incident("session_failed", "session-123")
    assert failed and "node-01, node-02, node-03, node-04: hard evidence in incident 1, a storm" in failed.note
    assert "Exclude them before you retry" in failed.note
    assert w.verbs() == []


def test_a_run_that_failed_in_a_storm_of_statistics_blames_no_node(running: Callable[..., World]) -> None:
    w = running()
    strike(w, SIX)
    w.scheduler.end("123", "FAILED", "1:0")
    pass_time(w, 3)
    failed = w.incident("session_failed", "session-123")
    assert failed and failed.note == "attempt 123#0 ended FAILED (exit code 1:0)"


def test_one_of_them_with_more_soft_evidence_of_another_kind_is_warned_of(running: Callable[..., World]) -> None:
    w = running()
    strike(w, SIX)
    pass_time(w, 2)
    strike(w, ["node-03"], "correctable_remap_growth", MEMORY)
    pass_time(w, 6)
    assert opened(w) == [("precursor", "node-03"), ("storm", "fabric")]


def test_a_late_joiner_is_of_the_storm_and_one_with_other_trouble_is_not(running: Callable[..., World]) -> None:
    w = running()
    strike(w, SIX)
    pass_time(w, 15)
    strike(w, ["node-10"])
    strike(w, ["node-11"], "correctable_remap_growth", MEMORY)
    pass_time(w, 6)
    assert opened(w) == [("precursor", "node-11"), ("storm", "fabric")]


def test_it_blows_over_half_an_hour_after_the_last_of_it(running: Callable[..., World]) -> None:
    w = running()
    strike(w, SIX)
    pass_time(w, 20, every=4)
    calm(w, SIX[1:])
    strike(w, ["node-08", "node-07"])
    pass_time(w, 5)
    assert storm(w).quiet_since is None, "it has only moved on"
    calm(w, [*SIX, "node-07", "node-08"])
    pass_time(w, 1)
    pass_time(w, 27, every=3)
    pass_time(w, 2)
    assert opened(w) == [("storm", "fabric")]
    pass_time(w, 3)
    assert opened(w) == []
    assert storm(w).closed_why == "it has blown over"


def test_while_nothing_can_be_read_it_does_not_blow_over(running: Callable[..., World]) -> None:
    w = running()
    strike(w, SIX)
    pass_time(w, 5)
    calm(w, SIX)
    w.eyes.metrics_problem = "no answer within 10 s"
    pass_time(w, 40, every=4)
    assert ("storm", "fabric") in opened(w) and storm(w).quiet_since is None


def test_a_second_gust_within_the_half_hour_is_the_same_storm_and_later_its_next_episode(
    running: Callable[..., World],
) -> None:
    w = running()
    strike(w, SIX)
    pass_time(w, 5)
    calm(w, SIX)
    pass_time(w, 20, every=4)
    strike(w, SIX)
    pass_time(w, 5)
    assert (storm(w).episode, storm(w).quiet_since) == (1, None)
    calm(w, SIX)
    pass_time(w, 33, every=3)
    strike(w, SIX)
    pass_time(w, 2)
    assert (storm(w).id, storm(w).episode) == (1, 2)


def test_what_is_left_of_it_on_one_node_is_that_nodes_own_trouble(running: Callable[..., World]) -> None:
    w = running()
    strike(w, SIX)
    pass_time(w, 10)
    calm(w, SIX[1:])
    pass_time(w, 25, every=5)
    assert opened(w) == [("storm", "fabric")], "the last one may only be slow"
    pass_time(w, 12, every=3)
    pass_time(w, 1)
    assert opened(w) == [("precursor", "node-01")]


def test_after_it_one_node_alone_is_warned_of_again(running: Callable[..., World]) -> None:
    w = running()
    strike(w, SIX)
    pass_time(w, 2)
    calm(w, SIX)
    pass_time(w, 33, every=3)
    strike(w, ["node-05"])
    pass_time(w, 6)
    assert opened(w) == [("precursor", "node-05")]


def test_a_warning_that_stood_before_the_storm_stays(running: Callable[..., World]) -> None:
    w = running()
    strike(w, ["node-04"])
    pass_time(w, 8)
    strike(w, [node for node in SIX if node != "node-04"])
    pass_time(w, 6)
    assert opened(w) == [("precursor", "node-04"), ("storm", "fabric")]


def test_nodes_that_failed_one_after_the_other_are_no_storm(running: Callable[..., World]) -> None:
    w = running()
    for node in SIX:
        strike(w, [node])
        pass_time(w, 6, every=3)
    pass_time(w, 3)
    assert opened(w) == [("precursor", node) for node in SIX]


# -- how long evidence has to stand ------------------------------------------------------------------------------------


def test_what_the_driver_reports_warns_at_once(running: Callable[..., World]) -> None:
    w = running()
    strike(w, ["node-01"], "xid_test", {"hard": False, "evidence": 0.75, "value": 74.0, "text": "Xid 74"})
    pass_time(w, 1)
    assert opened(w) == [("precursor", "node-01")]


def test_statistics_wait_four_minutes(running: Callable[..., World]) -> None:
    w = running()
    assert w.policy.numbers.score.open_after == 4 * MINUTE
    strike(w, ["node-01"], "sm_clock", {"hard": False, "evidence": 0.65, "value": 900.0, "text": "slow clock"})
    pass_time(w, 3)
    assert opened(w) == []
    pass_time(w, 2)
    assert opened(w) == [("precursor", "node-01")]
