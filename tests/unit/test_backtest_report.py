"""Alarms against the truth, at the edges of every rule."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bot.backtest import Alarm
from bot.backtest_files import Label
from bot.backtest_report import Report, alarmed_seconds, merged, report
from bot.backtest_run import Outcome
from bot.backtest_text import difference, text

MINUTE, HOUR, DAY = 60, 3600, 86_400
T0 = 1_800_000_000
END = T0 + 10 * DAY
STEP = 60
FAILS = T0 + 5 * DAY


def label(
    start: int = FAILS, node: str = "n1", category: str = "bus", xid: int | None = 79, lasts: int = HOUR
) -> Label:
    return Label(node, "3", category, xid, start, start + lasts)


def alarm(start: int = FAILS, node: str = "n1", category: str = "bus", **facts: Any) -> Alarm:
    given = {"end": start + 10 * MINUTE, "kind": "gpu_fault", "score": 0.95, **facts}
    return Alarm(node=node, start=start, category=category, **given)


def judged(alarms: list[Alarm], labels: list[Label], **facts: Any) -> Report:
    return report(alarms, labels, T0, END, STEP, **facts)


def detected(at: int, **facts: Any) -> bool:
    return bool(judged([alarm(at)], [label(**facts)]).detected)


# -- detected ----------------------------------------------------------------------------------------------------------


def test_detected_from_a_day_before() -> None:
    assert detected(FAILS - DAY)
    assert not detected(FAILS - DAY - 1)


def test_detected_until_five_minutes_after_or_thirty_without_a_code() -> None:
    assert detected(FAILS + 5 * MINUTE) and not detected(FAILS + 5 * MINUTE + 1)
    assert detected(FAILS + 30 * MINUTE, xid=None) and not detected(FAILS + 30 * MINUTE + 1, xid=None)


def test_an_alarm_must_begin_then_and_on_that_node() -> None:
    long = alarm(FAILS - 2 * DAY, end=FAILS + HOUR)
    assert not judged([long], [label()]).detected
    assert not judged([alarm(node="n2")], [label()]).detected


def test_any_kind_of_alarm_about_the_node_detects() -> None:
    for kind in ("gpu_fault", "precursor", "blind"):
        assert judged([alarm(kind=kind, category="telemetry")], [label()]).detected


def test_the_lead_is_that_of_the_first_alarm() -> None:
    found = judged([alarm(FAILS - HOUR), alarm(FAILS - 3 * HOUR), alarm(FAILS)], [label()]).found[0]
    assert found.lead_s == 3 * HOUR
    assert judged([alarm(FAILS + 60)], [label()]).found[0].lead_s == -60
    assert judged([], [label()]).found[0].lead_s is None


def test_failures_outside_the_range_are_not_counted_but_explain_alarms() -> None:
    before, after = label(T0 - HOUR, lasts=2 * HOUR), label(END)
    got = judged([alarm(T0 + 60), alarm(END - HOUR)], [before, after])
    assert got.found == () and got.false == ()


# -- early -------------------------------------------------------------------------------------------------------------


def early(at: int, saves: list[int] | None = None, **facts: Any) -> bool:
    known = None if saves is None else {"n1": saves}
    return judged([alarm(at, **facts)], [label()], saves=known).found[0].early


def test_early_leaves_time_for_a_tick_and_a_save() -> None:
    """Where no save is known, 45 min count until the next one begins and 5 min until it is complete."""
    assert early(FAILS - STEP - 50 * MINUTE)
    assert not early(FAILS - STEP - 50 * MINUTE + 1)


def test_early_where_saves_are_known_needs_one_that_began_after_the_tick() -> None:
    at = FAILS - 20 * MINUTE
    began = at + STEP
    assert early(at, [began + 5 * MINUTE])
    assert not early(at, [began + 5 * MINUTE - 1]), "that one had begun before"
    assert not early(at, [FAILS]), "it has to be complete before the failure"
    assert not early(at, []), "a run that never saves loses all in any case"


def test_early_only_in_the_category_of_the_failure() -> None:
    assert not early(FAILS - 3 * HOUR, category="ecc")
    both = judged([alarm(FAILS - 3 * HOUR, category="ecc"), alarm(FAILS - 2 * HOUR)], [label()])
    assert both.found[0].early and both.found[0].lead_s == 3 * HOUR
    late = judged([alarm(FAILS - 3 * HOUR, category="ecc"), alarm(FAILS - MINUTE)], [label()])
    assert not late.found[0].early


# -- false -------------------------------------------------------------------------------------------------------------


def false(*alarms: Alarm, labels: list[Label] | None = None) -> int:
    return len(judged(list(alarms), labels or []).false)


def test_false_alarms_of_a_node_within_thirty_minutes_are_one() -> None:
    first = alarm(T0 + DAY)
    assert false(first, alarm(first.end + 30 * MINUTE)) == 1
    assert false(first, alarm(first.end + 30 * MINUTE + 1)) == 2
    assert false(first, alarm(first.end + 60, node="n2")) == 2, "of two nodes they are two"
    assert false(first, alarm(first.start + 60, kind="precursor")) == 1


def test_only_what_blames_a_nodes_hardware_can_be_false() -> None:
    assert false(*(alarm(kind=kind) for kind in ("blind", "storm", "session_failed", "checkpoint_stall"))) == 0
    assert false(alarm(kind="precursor")) == 1


def test_an_alarm_about_a_failure_is_not_false_from_a_day_before_until_its_end() -> None:
    truth = [label(lasts=3 * HOUR)]
    assert false(alarm(FAILS - DAY), labels=truth) == 0
    assert false(alarm(FAILS - DAY - 1), labels=truth) == 1
    assert false(alarm(FAILS + 3 * HOUR), labels=truth) == 0
    assert false(alarm(FAILS + 3 * HOUR + 1), labels=truth) == 1
    assert false(alarm(FAILS, node="n2"), labels=truth) == 1


def test_a_failure_that_goes_on_explains_alarms_until_the_end() -> None:
    lasting = Label("n1", "", "bus", 79, FAILS, None)
    assert false(alarm(END - 60), labels=[lasting]) == 0


def test_what_would_have_detected_the_failure_is_never_false() -> None:
    short = [label(xid=None, lasts=0)]
    assert false(alarm(FAILS + 30 * MINUTE), labels=short) == 0


@settings(max_examples=30, deadline=None)
@given(
    st.lists(
        st.builds(
            lambda at, lasts, node, kind: alarm(T0 + at, node=node, end=T0 + at + lasts, kind=kind),
            st.integers(0, 5 * HOUR),
            st.integers(0, HOUR),
            st.sampled_from(["n1", "n2"]),
            st.sampled_from(["gpu_fault", "precursor", "blind"]),
        ),
        max_size=12,
    )
)
def test_merged_alarms_hold_all_and_lie_apart(alarms: list[Alarm]) -> None:
    found = merged(alarms)
    for one in (a for a in alarms if a.kind != "blind"):
        assert any(m.node == one.node and m.start <= one.start and one.end <= m.end for m in found)
    for first, second in zip(found, found[1:], strict=False):
        assert first.node != second.node or second.start - first.end > 30 * MINUTE
    assert merged(reversed(alarms)) == found


# -- figures -----------------------------------------------------------------------------------------------------------


def test_node_hours_count_each_moment_once() -> None:
    overlapping = [alarm(T0, end=T0 + HOUR), alarm(T0 + HOUR // 2, end=T0 + 2 * HOUR, kind="precursor")]
    assert alarmed_seconds(overlapping) == 2 * HOUR
    assert alarmed_seconds([*overlapping, alarm(T0, node="n2", end=T0 + HOUR)]) == 3 * HOUR
    assert alarmed_seconds([alarm(T0, kind="blind", end=T0 + HOUR)]) == 0


def test_chance_is_what_the_same_alarms_find_of_failures_at_other_times() -> None:
    """An alarm a day finds nearly every failure, whenever it is; one in ten days finds a tenth of them."""
    daily = [alarm(T0 + day * DAY) for day in range(10)]
    assert judged(daily, [label()]).chance == pytest.approx(1, abs=0.05)
    assert judged([alarm()], [label()]).chance == pytest.approx(0.1, abs=0.08)
    assert judged([alarm(node="n2")], [label()]).chance == 0
    assert judged(daily, []).chance == 0
    assert judged(daily, [label()]).chance == judged(daily, [label()]).chance, "the same each time"


def test_the_figures_are_what_others_read() -> None:
    alarms = [
        alarm(FAILS - 2 * HOUR),
        alarm(T0 + DAY, node="n9", category="ecc", kind="precursor"),
        alarm(kind="storm", node=""),
    ]
    truth = [label(), label(node="n2", category="thermal", xid=None)]
    got = judged(alarms, truth, peak_held=2, stopped={"cap": 3})
    figures = json.loads(Outcome(alarms, got).json())
    chance = figures.pop("chance_detected")
    assert 0 <= chance <= 1
    assert figures == {
        "failures": 2,
        "detected": 1,
        "early": 1,
        "median_lead_s": 7200,
        "false_per_day": 0.1,
        "messages_per_day": 0.3,
        "alarmed_node_hours": 0.3,
        "peak_held": 2,
        "stopped": {"cap": 3},
        "per_category": {
            "bus": {"failures": 1, "detected": 1, "early": 1, "false": 0},
            "ecc": {"failures": 0, "detected": 0, "early": 0, "false": 1},
            "thermal": {"failures": 1, "detected": 0, "early": 0, "false": 0},
        },
    }


def test_nothing_found_of_nothing_is_no_fault() -> None:
    figures = judged([], []).as_json()
    assert (figures["failures"], figures["detected"], figures["median_lead_s"]) == (0, 0, None)
    assert figures["per_category"] == {}


def test_the_alarms_file_has_these_keys_and_no_others() -> None:
    one = alarm(why="Xid 79 on GPU 3")
    (row,) = json.loads(Outcome([one], judged([one], [])).alarms_json())
    assert row == {
        "node": "n1",
        "start": FAILS,
        "end": FAILS + 600,
        "kind": "gpu_fault",
        "category": "bus",
        "score": 0.95,
    }


# -- in words ----------------------------------------------------------------------------------------------------------


def outcome(alarms: list[Alarm], labels: list[Label] | None = None, **facts: Any) -> Outcome:
    return Outcome(alarms, judged(alarms, labels or [], **facts))


def test_the_words_name_every_failure_and_every_false_alarm() -> None:
    alarms = [alarm(FAILS - 2 * HOUR), alarm(T0 + DAY, node="n9", category="ecc", why="31 remaps")]
    truth = [label(), label(node="n2", category="thermal", xid=None), label(FAILS + DAY, node="n3", xid=48)]
    alarms.append(alarm(FAILS + DAY + 120, node="n3"))
    told = text(outcome(alarms, truth, stopped={"cap": 3}))
    assert "2 of 3 failures detected, 1 early" in told
    assert "Xid 79   detected 120 min before, early" in told
    assert "no code  NOT DETECTED" in told
    assert "Xid 48   detected 2 min after" in told
    assert "1 false alarms (0.1 a day)" in told and "31 remaps" in told
    assert "guard cap would have stopped 3 actions" in told


def test_without_labels_no_word_about_failures() -> None:
    assert "failures" not in text(outcome([alarm()]))


def test_the_difference_names_what_only_one_of_two_policies_tells() -> None:
    ours, theirs = outcome([alarm(), alarm(node="n2")]), outcome([alarm(), alarm(node="n3"), alarm(node="n4")])
    told = difference(ours, theirs)
    assert "messages_per_day: 0.2 → 0.3" in told
    assert [line.split()[-1] for line in told.splitlines() if "only now" in line] == ["n2"]
    assert [line.split()[-1] for line in told.splitlines() if "only then" in line] == ["n3", "n4"]
    assert "no figure changes" in difference(ours, ours)
