"""How often and how fast, by who recovered; whether two classes differ; what an hour without progress is."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.model import Link, Recovery
from bot.outcomes import (
    CLASSES,
    Chain,
    Class,
    Figures,
    chains,
    difference,
    downtimes,
    figures,
    median,
    wilson,
)

HOUR = 3600


def recovery(number: int = 1, stopped: int = 1000, *links: Link, **facts: object) -> Recovery:
    made = Recovery(f"{number}.1/s", number, 1, "s", stopped, "1#0", chain=links)
    regained = [link.regained for link in links if link.regained is not None]
    return replace(made, regained=regained[-1] if regained else None, **facts)  # type: ignore[arg-type]


def counted(regained: int, of: int) -> Figures:
    made = [chain(regained=i < regained) for i in range(of)]
    return figures(made)["automated"]


def chain(name: Class = "automated", *, regained: bool = True, survived: bool = True, settled: bool = True) -> Chain:
    return Chain(name, "gpu_fault", 1, regained, survived and regained, 60, settled, False)


# -- intervals ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("hits", "cases", "low", "high"),
    [
        (4, 12, 0.14, 0.61),  # the study's automatic chains
        (2, 10, 0.06, 0.51),
        (81, 263, 0.2553, 0.3662),  # Newcombe 1998, single proportions, table I, method 3
        (15, 148, 0.0624, 0.1605),
        (0, 20, 0.0, 0.1611),
        (1, 29, 0.0061, 0.1718),
    ],
)
def test_wilson_gives_the_published_intervals(hits: int, cases: int, low: float, high: float) -> None:
    found = wilson(hits, cases)
    assert found == pytest.approx((low, high), abs=0.005 if low == 0.14 or cases == 10 else 0.00005)


def test_nothing_has_no_interval() -> None:
    assert wilson(0, 0) is None


@given(st.integers(1, 500).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_an_interval_lies_in_0_and_1_around_the_share(case: tuple[int, int]) -> None:
    found = wilson(*case)
    assert found is not None
    assert 0 <= found[0] <= case[0] / case[1] + 1e-9
    assert case[0] / case[1] - 1e-9 <= found[1] <= 1


@pytest.mark.parametrize(
    ("first", "second", "low", "high"),
    [  # Newcombe 1998, differences, table II, method 10
        ((56, 70), (48, 80), 0.0524, 0.3339),
        ((9, 10), (3, 10), 0.1705, 0.8090),
        ((6, 7), (2, 7), 0.0582, 0.8062),
        ((5, 56), (0, 29), -0.0381, 0.1926),
        ((0, 10), (0, 20), -0.1611, 0.2775),
        ((10, 10), (0, 10), 0.6075, 1.0),
    ],
)
def test_newcombe_gives_the_published_differences(
    first: tuple[int, int], second: tuple[int, int], low: float, high: float
) -> None:
    found = difference(counted(*first), counted(*second))
    assert found is not None
    assert (found.low, found.high) == pytest.approx((low, high), abs=0.00005)
    assert found.tells == (low > 0)


def test_the_studys_comparison_cannot_tell_and_says_what_is_missing() -> None:
    found = difference(counted(4, 12), counted(1, 8))
    assert found is not None
    assert not found.tells
    assert found.more == 134


def test_one_of_one_against_none_of_one_is_not_certainty() -> None:
    found = difference(counted(1, 1), counted(0, 1))
    assert found is not None
    assert not found.tells
    assert found.more == 6


def test_equal_shares_need_no_number_and_no_cases_give_no_difference() -> None:
    same = difference(counted(2, 4), counted(1, 2))
    assert same is not None
    assert same.more is None
    assert difference(counted(2, 4), Figures()) is None


# -- figures --------------------------------------------------------------------------------------


def test_runs_that_never_came_back_count_as_longer_than_all() -> None:
    assert median([]) is None
    assert median([10, 20, 30]) == 20
    assert median([10, 20, None]) == 20
    assert median([10, None, None]) is None
    assert median([10, 30, None, None]) == 30


def test_a_chain_told_elsewhere_is_left_out_and_an_open_one_is_open() -> None:
    moved = recovery(1, 1000, outcome="moved", ended=1100, chain_class="none")
    running = recovery(2, 2000, Link("1#1", 2100, "auto"))
    (only,) = chains([moved, running], {"1.1": "session_failed", "2.1": "gpu_fault"}, now=5000)
    assert (only.chain_class, only.kind, only.attempts, only.regained, only.after) == (
        "open",
        "gpu_fault",
        1,
        False,
        3000,
    )
    assert not only.settled


def test_time_to_regained_is_that_of_the_first_new_checkpoint() -> None:
    links = (
        Link("1#1", 1100, "auto", ended=1800, regained=1500),
        Link("1#2", 1900, "auto", regained=2500, survived=7000),
    )
    done = recovery(1, 1000, *links, survived=7000, ended=7000, outcome="survived", chain_class="automated")
    (only,) = chains([done], {"1.1": "gpu_fault"}, now=9000)
    assert (only.after, only.attempts, only.survived, only.settled) == (500, 2, True, True)


def test_a_run_that_its_owner_ended_after_it_had_regained_is_censored_for_survival_only() -> None:
    link = Link("1#1", 1100, "auto", regained=1500, ended=1600)
    ended = recovery(1, 1000, link, ended=1600, outcome="censored", chain_class="automated")
    own = figures(chains([ended], {"1.1": "gpu_fault"}, 9000))["automated"]
    assert (own.regained, own.survived, own.settled, own.survived_ci) == (1, 0, 0, None)
    assert own.ci == wilson(1, 1)


def test_a_cancelled_chain_counts_as_not_regained() -> None:
    cancelled = recovery(1, 1000, Link("1#1", 1100, "auto", ended=1200), ended=1300, outcome="cancelled")
    own = figures(chains([replace(cancelled, chain_class="automated")], {"1.1": "gpu_fault"}, 9000))["automated"]
    assert (own.chains, own.regained, own.ci) == (1, 0, wilson(0, 1))


def test_recurrence_is_the_same_run_stopping_within_a_day_of_having_regained() -> None:
    def one(number: int, stopped: int, session: str = "s") -> Recovery:
        link = Link("1#1", stopped + 100, "auto", regained=stopped + 500)
        return replace(recovery(number, stopped, link), session=session)

    day = 86_400
    runs = [one(1, 1000), one(2, 1500 + day - 1), one(3, 2000 + 3 * day), one(4, 2000, "another")]
    found = chains(runs, {f"{n}.1": "gpu_fault" for n in range(5)}, now=10 * day)
    assert [c.recurred for c in found] == [True, False, False, False]


@given(st.lists(st.tuples(st.sampled_from(CLASSES), st.booleans(), st.booleans(), st.booleans())))
def test_the_classes_add_up_to_the_chains(drawn: list[tuple[Class, bool, bool, bool]]) -> None:
    every = [chain(name, regained=r, survived=s, settled=t or (r and s)) for name, r, s, t in drawn]
    found = figures(every)
    assert tuple(found) == CLASSES
    assert sum(f.chains for f in found.values()) == len(every)
    assert sum(f.attempts for f in found.values()) == sum(c.attempts for c in every)
    assert sum(f.regained for f in found.values()) == sum(c.regained for c in every)
    for name, f in found.items():
        assert f.survived <= f.regained <= f.chains
        assert (f.ci is None) == (f.chains == 0 or name in ("none", "open"))


# -- time without progress ------------------------------------------------------------------------


def test_time_is_lost_from_the_stop_to_the_new_checkpoint_or_the_end_or_now() -> None:
    regained = recovery(1, 1000, Link("1#1", 1100, regained=1500, survived=5000), ended=5000, outcome="survived")
    given_up = recovery(1, 1000, Link("1#1", 1100, ended=1300), ended=1400, outcome="given_up")
    running = recovery(1, 1000, Link("1#1", 1100))
    assert list(downtimes(regained, 9000)) == [(1000, 1500)]
    assert list(downtimes(given_up, 9000)) == [(1000, 1400)]
    assert list(downtimes(running, 9000)) == [(1000, 9000)]


def test_an_attempt_that_had_regained_and_died_stops_the_run_anew() -> None:
    links = (
        Link("1#1", 1100, regained=1500, ended=1800),
        Link("1#2", 1900, ended=2000),
        Link("1#3", 2100, regained=2500),
    )
    assert list(downtimes(recovery(1, 1000, *links), 9000)) == [(1000, 1500), (1800, 2500)]
    assert list(downtimes(recovery(1, 1000, *links[:2]), 9000)) == [(1000, 1500), (1800, 9000)]


def test_a_run_that_never_stopped_and_a_recovery_told_elsewhere_lose_nothing() -> None:
    assert list(downtimes(recovery(1, 1000, ended=5000, outcome="cancelled"), 9000)) == []
    assert list(downtimes(recovery(1, 1000, Link("1#1", 1100), ended=5000, outcome="moved"), 9000)) == []
