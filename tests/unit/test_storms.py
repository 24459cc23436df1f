"""Many nodes at once are one cause. A node's trouble is written as (signal, minutes since it began)."""

from __future__ import annotations

from collections.abc import Mapping

from bot import policy as policies
from bot.model import NodeScore, Reading
from bot.policy import Policy
from bot.signals.score import look_back
from bot.storms import STRIKING, Storm, storms

NOW = 1_800_000_000
POLICY = policies.build()
INCIDENTS = POLICY.numbers.incidents
AGO = 3  # min

Shown = tuple[str, float] | tuple[str, float, float]  # signal, minutes ago, evidence


def score(node: str, *shown: Shown) -> NodeScore:
    readings = tuple(_reading(node, *one) for one in shown)
    return NodeScore(node, max((r.evidence for r in readings), default=0.0), False, readings)


def _reading(node: str, signal: str, ago: float, evidence: float = 0.65) -> Reading:
    begun = 60 * ago < POLICY.numbers.time.lag + look_back(POLICY)  # what one sees is as old as the lag
    return Reading(node, signal, "bad", evidence, 1.0, NOW - round(60 * ago), text=signal, begun=begun)


def found(nodes: Mapping[str, tuple[Shown, ...]], well: int = 0, policy: Policy = POLICY) -> dict[str, Storm]:
    scores = {node: score(node, *shown) for node, shown in nodes.items()}
    scores |= {f"well{i}": score(f"well{i}") for i in range(well)}
    return storms(scores, policy)


def many(count: int, *shown: Shown) -> dict[str, tuple[Shown, ...]]:
    return {f"n{i:02d}": shown for i in range(count)}


def test_as_many_nodes_as_the_policy_says_are_a_storm_and_one_less_is_none() -> None:
    enough = INCIDENTS.storm_nodes
    assert set(found(many(enough, ("link_down", AGO)))) == {"fabric"}
    assert found(many(enough - 1, ("link_down", AGO))) == {}


def test_it_names_its_nodes_its_signals_and_what_to_suspect() -> None:
    (storm,) = found(many(10, ("link_down", AGO), ("link_errors", AGO))).values()
    assert storm.nodes == {f"n{i:02d}" for i in range(10)}
    assert "10 nodes at once, n00, n01" in storm.note and "and 2 more" in storm.note
    assert "link_down" in storm.note and "a shared part" in storm.note
    assert len(storm.reasons) <= 8


def test_a_large_cluster_needs_its_share() -> None:
    assert INCIDENTS.storm_share == 0.05
    assert found(many(4, ("link_down", AGO)), well=200) == {}
    assert set(found(many(11, ("link_down", AGO)), well=200)) == {"fabric"}


def test_two_that_leave_the_crowd_together_are_enough() -> None:
    assert set(found(many(2, ("interrupts", AGO)))) == {"host"}
    assert found(many(1, ("interrupts", AGO))) == {}
    assert found(many(2, ("disk_full", AGO))) == {}, "a disk is full without any crowd"


def test_signals_of_one_category_make_one_storm_and_those_of_two_make_two() -> None:
    mixed = {f"n{i}": ((name, AGO),) for i, name in enumerate(["link_down", "link_down", "link_errors", "link_errors"])}
    assert set(found(mixed)) == {"fabric"}
    halves = {f"n{i}": ((name, AGO),) for i, name in enumerate(["link_down", "link_down", "disk_full", "disk_full"])}
    assert found(halves) == {}


def test_weak_evidence_and_what_the_catalogue_does_not_know_make_no_storm() -> None:
    assert found(many(9, ("link_down", AGO, STRIKING - 0.01))) == {}
    assert found(many(9, ("unheard_of", AGO))) == {}
    assert set(found(many(9, ("row_remap_pending", AGO, STRIKING)))) == {"ecc"}


def test_at_once_means_within_minutes() -> None:
    within = INCIDENTS.storm_within / 60
    assert set(found({f"n{i}": (("link_down", 1 + i * within / 3),) for i in range(4)})) == {"fabric"}
    assert found({f"n{i}": (("link_down", 1 + i * within / 2.9),) for i in range(4)}) == {}


def test_of_those_that_trickle_in_only_those_that_came_together_are_of_the_storm() -> None:
    nodes = many(5, ("link_down", AGO)) | {"lone": (("link_down", 11),)}
    assert found(nodes)["fabric"].nodes == {f"n{i:02d}" for i in range(5)}


def test_nodes_count_and_not_what_each_of_them_shows() -> None:
    """Two nodes with all kinds of trouble some minutes earlier do not hide four that came together."""
    loud = ("page_out", "memory_error", "memory_corrected", "disk_full")
    noisy = {f"x{i}": tuple((signal, 12) for signal in loud) for i in range(2)}
    assert found(noisy | many(4, ("disk_full", AGO)))["host"].nodes == {"n00", "n01", "n02", "n03"}


def test_what_has_stood_for_as_long_as_one_sees_did_not_begin_at_once() -> None:
    """A remapping waits for its reset for days, on one node more every week: they only look alike at the edge."""
    edge = (POLICY.numbers.time.lag + look_back(POLICY)) / 60  # min
    pending = many(6, ("row_remap_pending", edge, STRIKING))
    assert found(pending) == {}
    assert set(found(pending | {f"m{i}": (("row_remap_pending", AGO, STRIKING),) for i in range(4)})) == {"ecc"}


def test_what_has_stood_for_long_is_still_of_a_storm_that_is_told() -> None:
    scores = {f"n{i}": score(f"n{i}", ("link_down", 600)) for i in range(4)}
    assert storms(scores, POLICY) == {}
    assert set(storms(scores, POLICY, {"fabric"})) == {"fabric"}
