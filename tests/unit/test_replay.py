"""Eyes for the past: the same rows however time is split, jobs as their runs tell, GPUs as they were seen."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bot.backtest import Replayed, replay
from bot.backtest_files import Run
from bot.errors import Unreachable
from bot.events import IncidentOpened
from bot.model import Cluster, Observation
from bot.policy import Policy
from bot.replay import COARSE, DAY, REMEMBERED, ReplayObserver
from bot.signals.score import look_back
from tests.unit.past import HOUR, MINUTE, NODES, STEP, T0, Past, by_chance, policy, run

LAG = policy().numbers.time.lag
PATIENCE = policy().numbers.score.open_after


def observer(
    past: Past, runs: Sequence[Run] = (), minutes: int = 60, chunk: int = DAY, **facts: Policy
) -> ReplayObserver:
    return ReplayObserver(past, runs, facts.get("policy", policy()), T0, T0 + minutes * MINUTE, chunk)


def look(it: ReplayObserver, minute: int) -> Observation:
    return it.observe(T0 + minute * MINUTE + LAG)


def seen(it: ReplayObserver, minute: int) -> object:
    """What is decided from: good values are shown once they are told anew, and of how long a score has stood only
    whether it is long enough: a longer stretch sees further back."""
    row = look(it, minute)
    assert row.scores is not None
    scores = {
        node: (
            s.score,
            s.hard,
            s.sudden,
            s.soft_for >= PATIENCE,
            [(r.signal, r.evidence, r.value, r.text) for r in s.reasons],
        )
        for node, s in row.scores.items()
    }
    return row.at, scores, [(r.node, r.signal, r.state, r.evidence) for r in row.readings]


# -- time --------------------------------------------------------------------------------------------------------------


@settings(max_examples=4, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(STEP, 30 * STEP))
def test_any_split_of_the_time_axis_gives_the_same_scores(seed: int, chunk: int) -> None:
    past, minutes = by_chance(seed, -90, 45), 40
    runs = [run("1", NODES[:5], end=20), run("2", NODES, begin=25)]
    whole, split = observer(past, runs, minutes), observer(past, runs, minutes, chunk)
    for minute in range(minutes + 1):
        assert seen(split, minute) == seen(whole, minute), f"minute {minute}"


def test_what_is_seen_is_as_old_as_the_lag() -> None:
    past = Past()
    past.tells("xid_reboot", "n1", 79, 5, 6)
    it = observer(past)
    assert look(it, 4).at == T0 + 4 * MINUTE and look(it, 4).now == T0 + 4 * MINUTE + LAG
    early, late = it.observe(T0 + 5 * MINUTE + LAG - 1).scores, it.observe(T0 + 5 * MINUTE + LAG).scores
    assert early and late and not early["n1"].hard and late["n1"].hard


@pytest.mark.parametrize("chunk", [7 * MINUTE, 7 * MINUTE + 13, 1])
def test_each_stretch_is_asked_for_once_whatever_its_length(chunk: int) -> None:
    past = Past()
    it = observer(past, minutes=20, chunk=chunk)
    for minute in range(21):
        look(it, minute)
    starts = [start for signal, start, _, step in past.asked if signal == "xid_reboot"]
    length = max(chunk // STEP, 1)
    assert starts == [T0 + n * STEP - look_back(policy()) for n in range(0, 21, length)]
    assert {step for signal, _, _, step in past.asked if signal == "xid_reboot"} == {STEP}


def test_what_cannot_be_read_is_an_error_and_no_silence() -> None:
    with pytest.raises(Unreachable, match="connection refused"):
        look(observer(Past(broken=T0 - DAY)), 0)


# -- looking only where something strikes ------------------------------------------------------------------------------


def opened(it: ReplayObserver, *, everywhere: bool) -> list[tuple[int, str, str]]:
    if everywhere:
        it.striking = lambda now, told: True  # type: ignore[method-assign]
    done = replay(it, it.policy, Replayed([], it.start), lambda at: None)
    incidents = [(e.at, e.incident.kind, e.incident.subject) for e in done.events if isinstance(e, IncidentOpened)]
    return [i for i in incidents if i[1] in ("gpu_fault", "precursor", "storm")]


@settings(max_examples=2, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_looking_where_something_strikes_opens_what_looking_everywhere_opens(seed: int) -> None:
    past, runs = by_chance(seed, -90, 70), [run("1", NODES[:5], end=30), run("2", NODES, begin=35)]
    sparse, dense = (opened(observer(past, runs, 60), everywhere=everywhere) for everywhere in (False, True))
    assert sparse == dense


def test_gpus_that_nobody_sees_any_more_are_told_though_the_host_is_seen() -> None:
    past = Past()
    past.silences("n2", 20, 90, "dcgm")
    done = replay(observer(past, [run()], 90), policy(), Replayed([], T0), lambda at: None)
    blind = [e for e in done.events if isinstance(e, IncidentOpened)]
    assert [(e.incident.kind, e.incident.subject) for e in blind] == [("blind", "node:n2")]
    assert T0 + 20 * MINUTE < blind[0].at < T0 + 40 * MINUTE


def test_a_node_that_was_added_later_is_not_missed_before() -> None:
    past = Past()
    past.silences("n6", -24 * 60, 12 * 60)
    runs = [run(nodes=NODES[:5], begin=-60), run("2", NODES, begin=16 * 60, session="late")]
    it = observer(past, runs, 20 * 60)
    up = {minute: look(it, minute).cluster.nodes["n6"].up for minute in (60, 11 * 60, 14 * 60, 17 * 60)}  # type: ignore[union-attr]
    assert up == {60: False, 11 * 60: False, 14 * 60: True, 17 * 60: True}
    done = replay(it, policy(), Replayed([], T0), lambda at: None)
    assert [e for e in done.events if isinstance(e, IncidentOpened)] == []


# -- how many GPUs a node should have ----------------------------------------------------------------------------------


def missing(it: ReplayObserver, minute: int) -> dict[str, bool]:
    scores = look(it, minute).scores
    assert scores is not None
    return {node: score.hard for node, score in scores.items()}


def test_a_node_should_have_the_most_gpus_that_were_seen_on_it() -> None:
    past = Past()
    past.tells("gpu_missing", "n1", 7, -900, 900)  # it never had more
    past.tells("gpu_missing", "n2", 7, 300, 900)
    it = observer(past, minutes=600)
    assert missing(it, 299) == dict.fromkeys(NODES, False)
    assert missing(it, 310) == dict.fromkeys(NODES, False) | {"n2": True}


def test_one_sample_of_garbage_is_no_gpu_that_is_missing_ever_after() -> None:
    past = Past()
    for minute in range(0, 600, COARSE // MINUTE * 5):
        past.tells("gpu_missing", "n1", 16, minute, minute + 1)
    assert missing(observer(past, minutes=600), 50)["n1"] is False


def test_the_sites_word_counts_before_what_was_seen() -> None:
    told = policy().model_copy(update={"gpus": {"n3": 10, "n9": 4}})
    it = observer(Past(), minutes=600, policy=told)
    assert missing(it, 50)["n3"] is True
    assert {name: node.gpus for name, node in cluster(it, 50).nodes.items()} == dict.fromkeys(NODES, 8) | {
        "n3": 10,
        "n9": 4,
    }


def test_of_a_node_whose_gpus_nobody_ever_counted_nothing_is_missing() -> None:
    past = Past()
    past.tells("gpu_missing", "n1", math.nan, -900, 900)
    past.tells("gpu_missing", "n2", 0, -900, 900)
    it = observer(past, minutes=600)
    assert not missing(it, 50)["n1"] and not missing(it, 50)["n2"]
    assert cluster(it, 50).nodes["n1"].gpus is None


# -- jobs --------------------------------------------------------------------------------------------------------------


def cluster(it: ReplayObserver, minute: int) -> Cluster:
    found = look(it, minute).cluster
    assert found is not None
    return found


def attempts(it: ReplayObserver, minute: int, job: str = "1") -> dict[str, str]:
    return {a.id: a.state for a in cluster(it, minute).jobs[job].attempts} if job in cluster(it, minute).jobs else {}


def test_a_run_is_an_attempt_that_runs_and_ends_as_its_file_says() -> None:
    it = observer(Past(), [run(begin=10, end=20, state="NODE_FAIL")])
    assert attempts(it, 8) == {}
    assert attempts(it, 10) == attempts(it, 19) == {"1#0": "RUNNING"}
    assert attempts(it, 20) == {"1#0": "NODE_FAIL"}


def test_a_run_whose_end_nobody_knows_the_reason_of_completed() -> None:
    for state in ("", "RUNNING"):
        assert attempts(observer(Past(), [run(end=5, state=state)]), 6) == {"1#0": "COMPLETED"}


def test_a_job_that_ran_again_has_an_attempt_more() -> None:
    runs = [run(begin=30), run(begin=0, end=20, state="FAILED")]  # in any order
    it = observer(Past(), runs)
    assert attempts(it, 5) == {"1#0": "RUNNING"}
    assert attempts(it, 40) == {"1#0": "FAILED", "1#1": "RUNNING"}
    job = cluster(it, 40).jobs["1"]
    assert (job.name, job.state, job.node_count, job.gpus_per_node) == ("train", "RUNNING", 6, 8)
    assert (job.first_submit, job.submit) == (T0, T0 + 30 * MINUTE)


def test_ordinals_stay_when_old_attempts_are_forgotten() -> None:
    days = 3 * DAY // MINUTE
    runs = [run(begin=0, end=10, state="FAILED"), run(begin=20, end=30, state="FAILED"), run(begin=days - 10)]
    it = observer(Past(), runs, minutes=days + 60)
    assert "1" in cluster(it, 20 + REMEMBERED // MINUTE).jobs
    assert "1" not in cluster(it, 40 + REMEMBERED // MINUTE).jobs
    assert attempts(it, days) == {"1#0": "FAILED", "1#1": "FAILED", "1#2": "RUNNING"}


def test_nodes_are_those_that_ran_something_or_showed_gpus() -> None:
    it = observer(Past(nodes=("n1", "n2")), [run(nodes=("n2", "n7"))])
    assert set(cluster(it, 5).nodes) == {"n1", "n2", "n7"}
    assert cluster(it, 5).jobs["1"].gpus_per_node == 8


def test_a_run_without_nodes_is_no_trouble() -> None:
    assert attempts(observer(Past(), [run(nodes=())]), 5) == {"1#0": "RUNNING"}


def test_without_runs_no_node_has_peers() -> None:
    past = Past()
    past.tells("interrupts", "n4", 100, -60, 60)
    with_runs, without = look(observer(past, [run()]), 30).scores, look(observer(past), 30).scores
    assert with_runs and without
    assert [r.signal for r in with_runs["n4"].reasons] == ["interrupts"]
    assert without["n4"].reasons == ()


def test_a_job_change_in_the_middle_of_a_stretch_changes_the_peers() -> None:
    """n6 is as hot as its new mates, and was hotter than its old ones for too short a time."""
    past = Past(nodes=(*NODES, "h1", "h2", "h3", "h4"))
    for node in ("n6", "h1", "h2", "h3", "h4"):
        past.tells("interrupts", node, 1000, -60, 60)
    hot = ("h1", "h2", "h3", "h4", "n6")
    runs = [
        run("1", NODES, end=20),
        run("2", hot, begin=-600, end=20, session="b"),
        run("3", hot, begin=20, session="c"),
    ]
    it = observer(past, [runs[0], run("2", hot[:4], end=20, session="b"), runs[2]])
    before, after = look(it, 19).scores, look(it, 40).scores
    assert before and after
    assert [r.signal for r in before["n6"].reasons] == ["interrupts"] and after["n6"].reasons == ()


def test_hours_of_looks_take_one_question_per_signal_and_stretch() -> None:
    past = Past()
    it = observer(past, minutes=5 * 60, chunk=2 * HOUR)
    for minute in range(5 * 60 + 1):
        look(it, minute)
    assert sum(signal == "xid_reboot" for signal, *_ in past.asked) == 3
    assert replace(look(it, 3), now=0).at == T0 + 3 * MINUTE, "and back again"
