"""Windows are written as one string per signal or node: a digit is a value, `.` a sample that is not there."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot import policy as policies
from bot.errors import ConfigError
from bot.model import NodeScore, Reading
from bot.policy import Policy, Signal
from bot.signals.rows import row_of
from bot.signals.score import Scores, Window, score

STEP = 15
BEGIN = 1_800_000_000
POLICY = policies.build()


def signal(id: str = "a", *, persistence: int = 0, **fields: Any) -> Signal:
    evidence = {"class": "threshold", "strength": 0.5, **fields.pop("evidence", {})}
    words = {"title": id, "category": "bus", "query": "q", "text": "{value:g}", "why": "w", "source": "s", **fields}
    return Signal.model_validate({**words, "id": id, "evidence": evidence, "persistence": persistence})


def window(table: dict[Signal, str] | list[tuple[Signal, str]], expected: float = 8, known: bool = True) -> Window:
    """One node."""
    rows = list(table.items() if isinstance(table, dict) else table)
    values = np.array([[[math.nan if c == "." else int(c)] for c in text] for _, text in rows], dtype=np.float64)
    times = BEGIN + STEP * np.arange(values.shape[1])
    return Window(tuple(s for s, _ in rows), ("n1",), times, values, np.array([expected]), np.array([known]))


def scored(*rows: tuple[Signal, str], **fields: Any) -> Scores:
    return score(window(list(rows), **fields), POLICY)


def node_scores(found: Scores, row: int) -> Mapping[str, NodeScore]:
    return row_of(found, row).scores


def readings(found: Scores, row: int) -> tuple[Reading, ...]:
    return row_of(found, row).readings


def evidence(it: Signal, text: str, **fields: Any) -> list[float | None]:
    found = scored((it, text), **fields).evidence[0, :, 0].tolist()
    return [None if math.isnan(value) else round(value, 4) for value in found]


# -- one signal --------------------------------------------------------------------------------------------------------


def test_threshold() -> None:
    assert evidence(signal(evidence={"at": 3}), "0234.") == [0, 0, 0.5, 0.5, None]


def test_ramp_rises_to_full_and_no_further() -> None:
    ramp = signal(evidence={"at": 2, "strength": 0.6, "ramp": 6, "full": 0.8})
    assert evidence(ramp, "124689") == [0, 0.6, 0.7, 0.8, 0.8, 0.8]


def test_weight_scales() -> None:
    assert evidence(signal(weight=0.5), "01") == [0, 0.25]


def test_missing_is_counted_against_what_the_node_should_have() -> None:
    missing = signal(evidence={"class": "missing"})
    assert evidence(missing, "8975.") == [0, 0, 0.5, 0.5, None]
    assert evidence(missing, "80", expected=math.nan) == [None, None]
    assert evidence(missing, "0") == [None], "all of them at once are another signal"


def test_all_gpus_gone_is_only_said_of_a_node_that_should_have_some() -> None:
    gone = signal(evidence={"class": "gone"})
    assert evidence(gone, "8700.") == [0, 0, 0.5, 0.5, None]
    assert evidence(gone, "0", expected=0) == [0]
    assert evidence(gone, "0", expected=math.nan) == [None]


def test_change_is_a_rise_within_what_it_lasts() -> None:
    change = signal(evidence={"class": "change", "at": 2, "lasts": 3 * STEP})
    assert evidence(change, "5557777735") == [0, 0, 0, 0.5, 0.5, 0.5, 0, 0, 0, 0.5]
    assert evidence(change, "5.7.") == [0, None, 0.5, None]


def test_an_event_counts_for_as_long_as_it_lasts() -> None:
    event = signal(evidence={"lasts": 2 * STEP})
    assert evidence(event, "0100000") == [0, 0.5, 0.5, 0.5, 0, 0, 0]
    assert evidence(event, "01..." + "0") == [0, 0.5, 0.5, 0.5, None, 0], "also when its exporter dies of it"
    assert scored((event, "0700")).values[0, :, 0].tolist() == [0, 7, 7, 7], "and shows what it was"


# Two minutes of persistence are nine samples; seven of them must be there. What the last sample is taken for:
PERSISTENCE = {
    "000000000": "good",
    "111111111": "bad",
    "011111111": "good",
    "111111110": "good",
    "110111111": "good",  # one good sample, and it begins anew
    "111.11111": "bad",  # a lost scrape does not
    "11..11111": "bad",
    "1...11111": "unknown",
    "....11111": "unknown",
    "0...11111": "good",  # not for so long, that much is known
    "11111111.": "unknown",
    ".........": "unknown",
}


@pytest.mark.parametrize(("samples", "state"), PERSISTENCE.items())
def test_persistence(samples: str, state: str) -> None:
    found = scored((signal(persistence=120), samples))
    assert row_of(found, len(samples) - 1).readings[0].state == state


def test_too_short_a_window_proves_nothing() -> None:
    assert evidence(signal(persistence=120), "11111") == [None] * 5


# -- the score ---------------------------------------------------------------------------------------------------------


def total(*rows: Signal) -> tuple[float, bool]:
    found = scored(*((row, "1") for row in rows))
    return round(float(found.score[0, 0]), 4), bool(found.hard[0, 0])


def soft(strength: float, category: str = "bus") -> Signal:
    return signal(evidence={"strength": strength}, category=category)


def hard(strength: float, category: str = "bus") -> Signal:
    return signal(evidence={"strength": strength}, category=category, hard=True)


def test_within_a_category_the_strongest_counts() -> None:
    assert total(soft(0.3), soft(0.5), soft(0.2)) == (0.5, False)


def test_across_categories_they_add_up_as_independent_ones() -> None:
    assert total(soft(0.5), soft(0.4, "ecc")) == (0.7, False)


def test_soft_evidence_stops_below_the_hard_line() -> None:
    assert total(*(soft(0.75, category) for category in ("bus", "ecc", "gsp", "host"))) == (0.79, False)


def test_hard_evidence_condemns_and_soft_may_add() -> None:
    assert total(hard(1.0)) == (1.0, True)
    assert total(hard(0.95), soft(0.5, "ecc")) == (0.975, True)
    assert total(hard(0.95), soft(0.5)) == (0.95, True)
    assert total(hard(0.6)) == (0.6, False)


def test_shown_evidence_scores_nothing() -> None:
    found = scored((signal("shown", evidence={"strength": 0}), "1"), (signal("other"), "0"))
    assert row_of(found, 0).scores["n1"].score == 0
    assert [(r.signal, r.state, r.evidence) for r in row_of(found, 0).scores["n1"].reasons] == [("shown", "bad", 0.0)]


def test_a_node_of_which_nothing_is_known_has_no_score() -> None:
    """An exporter that is down says nothing about its node: not that it is well either."""
    down = signal("down", evidence={"strength": 0})
    assert node_scores(scored((signal(), "."), (down, "1")), 0) == {}
    assert node_scores(scored((signal(), "0"), (signal("b"), ".")), 0)["n1"].score == 0


def test_soft_for_is_how_long_the_score_has_stood_at_the_opening_line() -> None:
    high = {"strength": 0.7}
    assert node_scores(scored((signal(evidence=high), "0101111")), 6)["n1"].soft_for == 3 * STEP
    assert node_scores(scored((signal(evidence=high), "01.1")), 3)["n1"].soft_for == 2 * STEP, "a gap breaks nothing"
    assert node_scores(scored((signal(evidence=high), "1110")), 3)["n1"].soft_for == 0
    assert node_scores(scored((signal(evidence={"strength": 0.5}), "1111")), 3)["n1"].soft_for == 0


# -- readings ----------------------------------------------------------------------------------------------------------


def test_a_reading_tells_what_since_when_and_of_whom() -> None:
    shipped = POLICY.signals["xid_reboot"].model_copy(update={"query": ""})
    values = np.array([[[0.0], [79.0], [79.0]]])
    seen = Window((shipped,), ("n9",), BEGIN + STEP * np.arange(3), values, np.array([8.0]), np.array([False]))
    (reading,) = readings(score(seen, POLICY), 2)
    assert (reading.node, reading.signal, reading.state, reading.hard) == ("n9", "xid_reboot", "bad", True)
    assert (reading.evidence, reading.value, reading.since) == (1.0, 79.0, BEGIN + STEP)
    assert reading.text == "Xid 79 (GPU has fallen off the bus)"
    assert not reading.known and reading.provenance == "kernel"


def test_unknown_has_no_value_and_no_text() -> None:
    (reading,) = readings(scored((signal(hard=True), "1.")), 1)
    assert (reading.state, reading.value, reading.text, reading.since, reading.hard) == (
        "unknown",
        None,
        "",
        None,
        False,
    )


def test_since_is_the_begin_of_the_present_stretch() -> None:
    found = scored((signal(), "1101.1"))
    assert row_of(found, 5).readings[0].since == BEGIN + 3 * STEP
    assert row_of(found, 1).readings[0].since == BEGIN
    assert row_of(found, 2).readings[0].since is None


def test_reasons_come_strongest_first() -> None:
    rows = [(signal(name, evidence={"strength": s}), "1") for name, s in (("b", 0.3), ("c", 0.5), ("a", 0.3))]
    assert [r.signal for r in row_of(scored(*rows), 0).scores["n1"].reasons] == ["c", "a", "b"]


def test_gpu_missing_says_how_many() -> None:
    text = POLICY.signals["gpu_missing"].text.format(value=7.0, expected=8.0, xid_name="")
    assert text == "GPU count 7 of 8 while the exporter is up"


# -- the shipped catalogue ---------------------------------------------------------------------------------------------

STRENGTH = {
    "xid_reboot": 1.0,
    "xid_reset": 1.0,
    "xid_repair": 1.0,
    "xid_test": 0.75,
    "xid_reset_idle": 0.55,
    "xid_restart_app": 0.0,
    "gpu_missing": 0.95,
    "exporter_down": 0.0,
    "row_remap_failure": 1.0,
    "dbe": 1.0,
    "uncorrectable_remap": 0.75,
    "correctable_remap_growth": 0.60,
    "gpus_gone": 0.95,
    "gpu_lost_log": 0.95,
    "xid_claimed": 0.95,
}


def test_the_catalogue_weighs_as_agreed() -> None:
    signals = POLICY.signals
    assert {name: signals[name].evidence.strength for name in STRENGTH} == STRENGTH
    line = POLICY.numbers.score.hard_line
    assert {name for name, s in signals.items() if s.hard} == {
        n for n, strength in STRENGTH.items() if strength >= line
    }
    assert signals["correctable_remap_growth"].evidence.full == POLICY.numbers.score.soft_cap


@pytest.mark.parametrize("it", POLICY.signals.values(), ids=lambda s: s.id)
def test_a_look_back_fits_into_the_window(it: Signal) -> None:
    assert it.persistence + it.evidence.lasts <= POLICY.numbers.time.window
    if not it.hard and it.evidence.lasts and not it.evidence.event:
        assert it.evidence.lasts > POLICY.numbers.score.open_after, "else soft evidence never opens anything"


WRONG = {
    "ramp and full go together": {"ramp": "5"},
    "ramp must lie above at": {"at": "5", "ramp": "5", "full": "1"},
    "class change needs lasts": {"class": "change"},
}


@pytest.mark.parametrize(("words", "over"), WRONG.items())
def test_half_a_rule_is_refused(words: str, over: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match=words):
        policies.signals({"dbe": {"evidence": over}})


def test_a_text_that_cannot_be_filled_in_is_refused() -> None:
    with pytest.raises(ConfigError, match="it knows value, expected, peers, xid_name"):
        policies.signals({"dbe": {"text": "{valeu}"}})


# -- any split of the time axis gives the same scores ------------------------------------------------------------------

MIXED = (
    signal("plain", category="bus"),
    signal("lasting", category="ecc", hard=True, evidence={"strength": 1.0, "lasts": 4 * STEP}),
    signal("long", category="bus", persistence=5 * STEP, evidence={"strength": 0.7}),
    signal("both", category="gsp", persistence=2 * STEP, evidence={"lasts": 3 * STEP}),
    signal("rise", category="host", evidence={"class": "change", "lasts": 5 * STEP}),
    signal("ramp", category="power", evidence={"strength": 0.2, "ramp": 4, "full": 0.9}),
    signal("gpus", category="bus", persistence=STEP, evidence={"class": "missing"}),
)
LOOK_BACK = 5  # rows: the longest persistence plus what it lasts
SAMPLES = st.sampled_from([0.0, 0.0, 0.0, 1.0, 2.0, 8.0, math.nan])


def part(whole: Window, begin: int, end: int) -> Window:
    return Window(
        whole.signals, whole.nodes, whole.times[begin:end], whole.values[:, begin:end], whole.expected, whole.known
    )


@st.composite
def splits(draw: st.DrawFn) -> tuple[Window, int]:
    length = draw(st.integers(LOOK_BACK + 1, 30))
    cells = draw(st.lists(SAMPLES, min_size=len(MIXED) * length * 2, max_size=len(MIXED) * length * 2))
    values = np.array(cells).reshape(len(MIXED), length, 2)
    times = BEGIN + STEP * np.arange(length)
    whole = Window(MIXED, ("a", "b"), times, values, np.array([8.0, math.nan]), np.array([True, True]))
    return whole, draw(st.integers(0, length - LOOK_BACK - 1))


@given(splits())
def test_a_row_whose_look_back_is_complete_scores_the_same_in_every_window(split: tuple[Window, int]) -> None:
    whole, begin = split
    end = begin + LOOK_BACK + 1
    long, short = score(whole, POLICY), score(part(whole, begin, end), POLICY)
    np.testing.assert_array_equal(short.evidence[:, -1], long.evidence[:, end - 1])
    np.testing.assert_array_equal(short.score[-1], long.score[end - 1])
    np.testing.assert_array_equal(short.hard[-1], long.hard[end - 1])


@given(splits())
def test_what_is_bad_is_known_and_never_more_than_one(split: tuple[Window, int]) -> None:
    found = score(split[0], POLICY)
    told = found.evidence[~np.isnan(found.evidence)]
    assert ((told >= 0) & (told <= 1)).all()
    assert not (found.bad & np.isnan(found.evidence)).any()
    assert not (found.hard & ~(found.score >= POLICY.numbers.score.hard_line)).any()


def test_policy_is_the_only_thing_beside_the_window() -> None:
    stricter: Policy = policies.build(policy={"score": {"soft_cap": "0.5"}})
    assert score(window([(soft(0.75), "1")]), stricter).score[0, 0] == 0.5
