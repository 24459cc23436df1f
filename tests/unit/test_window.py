"""What metrics, logs and the scheduler tell, laid together. Marks are drawn as they stand, one digit a look."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from bot import policy as policies
from bot.model import Attempt, Cluster, Holder, Job, Mark, Node
from bot.policy import Policy
from bot.ports import Matrix
from bot.signals.score import Window, look_back
from bot.window import Heard, health_marks, stays_of, times_back, told_texts, window

STEP = 15
T0 = 1_800_000_000
POLICY = policies.build()
ROWS = 6
TIMES = T0 + STEP * np.arange(ROWS)


def at(row: float) -> int:
    return T0 + round(STEP * row)


def matrix(value: float = 0.0, *hosts: str, known: bool = True) -> Matrix:
    hosts = hosts or ("n1", "n2")
    return Matrix(hosts, (known,) * len(hosts), TIMES, np.full((ROWS, len(hosts)), value))


def laid(*marks: Mark, signals: tuple[str, ...] = (), policy: Policy = POLICY, **matrices: Matrix) -> Window:
    given = matrices or {"xid_reboot": matrix()}
    return window(policy, given, TIMES, {}, heard=Heard(marks, signals))


def row(seen: Window, signal: str, node: str = "n1") -> str:
    """A digit a look, `.` where nothing is known."""
    names = [one.id for one in seen.signals]
    values = seen.values[names.index(signal), :, seen.nodes.index(node)]
    return "".join("." if math.isnan(value) else f"{value:.0f}" for value in values)


def mark(row: float, signal: str = "xid_reboot", node: str = "n1", **facts: Any) -> Mark:
    return Mark(at(row), node, signal, **{"value": 7.0, **facts})


# -- marks laid over ---------------------------------------------------------------------------------------------------


def test_a_log_outranks_the_gauge() -> None:
    seen = laid(mark(2), xid_reboot=matrix(5))
    assert row(seen, "xid_reboot") == "557555"
    assert row(seen, "xid_reboot", "n2") == "555555", "and speaks of its own node only"
    assert row(seen, "xid_reset") == "......", "and of its own signal"


def test_a_log_speaks_where_the_gauge_is_silent() -> None:
    assert row(laid(mark(2), xid_reboot=matrix(math.nan)), "xid_reboot") == "..7..."
    assert row(laid(mark(2), xid_reset=matrix()), "xid_reboot") == "..7...", "also when it could not be asked for"


def test_a_mark_between_two_looks_stands_at_the_next() -> None:
    assert row(laid(mark(1.1)), "xid_reboot") == "007000"


def test_a_mark_that_lasts_stands_at_every_look_until_its_end() -> None:
    assert row(laid(mark(1, until=at(3))), "xid_reboot") == "077700"
    assert row(laid(mark(1.5, until=at(3.5))), "xid_reboot") == "007700"
    assert row(laid(mark(1, until=at(99))), "xid_reboot") == "077777"


def test_a_mark_that_ends_before_the_next_look_is_still_seen_once() -> None:
    assert row(laid(mark(1.2, until=at(1.6))), "xid_reboot") == "007000"


def test_marks_outside_the_window_are_left_out() -> None:
    assert row(laid(mark(-1), mark(ROWS)), "xid_reboot") == "000000"
    assert row(laid(mark(-5, until=at(-1))), "xid_reboot") == "000000"
    assert row(laid(mark(ROWS - 1)), "xid_reboot") == "000007"


def test_a_mark_that_began_before_the_window_and_lasts_is_seen_in_it() -> None:
    assert row(laid(mark(-5, until=at(1))), "xid_reboot") == "770000"


def test_of_two_marks_at_one_look_the_later_stands_in_whatever_order_they_come() -> None:
    early, late = mark(2, value=3.0), mark(2.9, value=4.0)
    for marks in ((early, late), (late, early)):
        assert row(laid(*marks), "xid_reboot") == "003400"
    early, late = mark(1.1, value=3.0), mark(1.9, value=4.0)
    for marks in ((early, late), (late, early)):
        assert row(laid(*marks), "xid_reboot") == "004000"


def test_a_claim_never_speaks_for_the_kernel() -> None:
    claimed = mark(2, provenance="claimed")
    assert row(laid(claimed), "xid_reboot") == "000000"
    assert row(laid(mark(2, "xid_claimed", provenance="claimed")), "xid_claimed") == "..7..."
    assert row(laid(mark(2, "alert")), "alert") == "..7...", "the kernel may say what others may claim"


def test_a_claim_that_weighs_nothing_may_be_shown_beside_the_kernels() -> None:
    assert POLICY.signals["xid_restart_app"].evidence.strength == 0
    assert row(laid(mark(2, "xid_restart_app", provenance="claimed")), "xid_restart_app") == "..7..."


def test_a_mark_of_a_signal_that_the_site_does_not_have_changes_nothing() -> None:
    seen = laid(mark(2, "not_in_the_catalogue"))
    assert np.nansum(seen.values) == 0


def test_a_node_that_only_a_log_names_is_there_and_keeps_what_the_log_knows_of_it() -> None:
    seen = laid(mark(2, node="n9", known=True), mark(2, node="stranger", known=False))
    assert dict(zip(seen.nodes, seen.known.tolist(), strict=True)) == {
        "n1": True,
        "n2": True,
        "n9": True,
        "stranger": False,
    }
    assert row(seen, "xid_reboot", "n9") == "..7..."


def test_what_only_logs_tell_is_good_once_its_log_is_read() -> None:
    assert row(laid(), "gpu_lost_log") == "......", "no log is read: nobody knows"
    assert row(laid(signals=("gpu_lost_log",)), "gpu_lost_log") == "000000"
    assert row(laid(mark(2, "gpu_lost_log"), signals=("gpu_lost_log",)), "gpu_lost_log") == "007000"
    assert row(laid(signals=("xid_reset",)), "xid_reset") == "......", "a log's silence is no measurement of a gauge"


# -- hosts -------------------------------------------------------------------------------------------------------------


def test_hosts_are_those_that_were_seen_and_nodes_that_should_have_gpus() -> None:
    matrices = {"xid_reboot": matrix(1, "n2", "n1"), "dbe": matrix(2, "n3", "n1", known=False)}
    seen = window(POLICY, matrices, TIMES, {"n1": 8, "n7": 4, "login": 0, "n8": math.nan})
    assert seen.nodes == ("n2", "n1", "n3", "n7")
    assert row(seen, "xid_reboot", "n2") == "111111"
    assert row(seen, "dbe", "n3") == "222222" and row(seen, "dbe", "n2") == "......"
    assert row(seen, "xid_reboot", "n7") == "......"
    np.testing.assert_array_equal(seen.expected, [math.nan, 8, math.nan, 4])
    assert seen.known[[0, 3]].all() and not seen.known[2]


def test_the_times_hold_all_that_the_first_look_looks_back_to() -> None:
    times = times_back(POLICY, T0, T0 + 60)
    assert (int(times[0]), int(times[-1])) == (T0 - look_back(POLICY), T0 + 60)
    assert set(np.diff(times).tolist()) == {POLICY.numbers.time.step}


def test_a_site_that_waits_longer_looks_back_longer() -> None:
    longer = policies.build(signal_overrides={"dbe": {"persistence": "40m"}})
    assert look_back(longer) >= 2400 > look_back(POLICY)


# -- words -------------------------------------------------------------------------------------------------------------


def test_the_newest_text_that_still_counts_is_told() -> None:
    lasts = POLICY.signals["xid_reboot"].evidence.lasts
    marks = [mark(2, text="second"), mark(1, text="first"), mark(3, text=""), mark(9, text="not yet")]
    told = told_texts(marks, POLICY.signals, at(4))
    assert told == {("xid_reboot", "n1"): "second"}
    assert told_texts(marks, POLICY.signals, at(9) + lasts + 3600) == {}
    assert told_texts([mark(1, "unheard_of", text="x")], POLICY.signals, at(1)) == {}


# -- what the scheduler tells ------------------------------------------------------------------------------------------


def cluster(*attempts: Attempt, nodes: tuple[Node, ...] = ()) -> Cluster:
    jobs = {
        a.job: Job(a.job, "train", "u", a.state, attempts=tuple(b for b in attempts if b.job == a.job))
        for a in attempts
    }
    return Cluster("c", at(9), {node.name: node for node in nodes}, jobs)


def test_every_attempt_that_ran_makes_peers() -> None:
    ran = Attempt("1", 0, "FAILED", ("n1",), at(0), at(2))
    runs = Attempt("1", 1, "RUNNING", ("n2",), at(3))
    waits = Attempt("2", 0, "PENDING", (), at(9))
    vanished = Attempt("3", 0, "LOST", ("n3",), at(0), None)
    stays = list(stays_of(cluster(ran, runs, waits, vanished)))
    assert [(stay.run, stay.nodes, stay.start, stay.end) for stay in stays] == [
        ("1#0", ("n1",), at(0), at(2)),
        ("1#1", ("n2",), at(3), None),
    ]


def test_a_health_checkers_drain_is_a_mark_and_a_persons_is_not() -> None:
    nhc, person = Holder("health", "NHC", "check_hw_ib", since=at(3)), Holder("person", "root", "repair", since=at(1))
    nodes = (
        Node("n1", "DRAINED", True, False, (nhc, person)),
        Node("n2", "DRAINED", True, False, (person,)),
        Node("n3", "DRAINED", True, False, (Holder("health", "NHC", "check_fs"),)),
    )
    told = list(health_marks(cluster(nodes=nodes)))
    assert [(m.node, m.signal, m.at, m.until, m.provenance) for m in told] == [
        ("n1", "health_check", at(3), at(9), "claimed"),
        ("n3", "health_check", at(9), at(9), "claimed"),
    ]
    assert "NHC" in told[0].text and "check_hw_ib" in told[0].text
    assert row(laid(*told, signals=("health_check",)), "health_check") == "000111"
