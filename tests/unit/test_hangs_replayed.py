"""A hang in the past is found by the backtest as it would have been live."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np
import pytest

import playbooks
from bot import policy as policies
from bot.backtest import Replayed, replay
from bot.backtest_files import Run
from bot.events import IncidentClosed, IncidentOpened
from bot.plans import STEPS
from bot.policy import Match, Policy, SessionRule, Signal
from bot.ports import Matrix
from bot.replay import ReplayObserver

T0, MINUTE, HOUR = 1_800_000_000, 60, 3600
NODES = ("node-01", "node-02", "node-03", "node-04")
HANG = range(T0 + 2 * HOUR, T0 + 2 * HOUR + 50 * MINUTE)
SHOWN = {"tensor_busiest": 0.6, "tensor_activity": 0.4, "fabric_bytes": 2e9}


@dataclass
class Metrics:
    """A run that works and, for a while, does not."""

    def matrix(self, signal: Signal, start: int, end: int, step: int, nodes: Collection[str]) -> Matrix:
        times = np.arange(start, end + 1, step)
        value = np.where((times >= HANG.start) & (times < HANG.stop), 0.0, SHOWN.get(signal.id, np.nan))
        if signal.id not in SHOWN:
            value = np.full(len(times), 8.0 if signal.evidence.kind in ("missing", "gone") else np.nan)
        return Matrix(NODES, (True,) * 4, times, np.repeat(value[:, None], 4, axis=1))


def policy() -> Policy:
    everyone = [SessionRule(match=Match(name="*"))]
    books = playbooks.load(None, STEPS)
    return policies.build(policy={"time": {"step": "60s"}}, sessions=everyone, playbooks=books)


@pytest.mark.parametrize("chunk", [4 * HOUR, 30 * MINUTE])
def test_a_hang_is_found_in_its_minutes_and_closed_when_the_run_went_on(chunk: int) -> None:
    runs = [Run("pretrain", "123", NODES, T0 - HOUR, None, "RUNNING")]
    done = Replayed([], T0)
    replay(ReplayObserver(Metrics(), runs, policy(), T0, T0 + 4 * HOUR, chunk), policy(), done, lambda at: None)
    opened = [e for e in done.events if isinstance(e, IncidentOpened)]
    closed = [e for e in done.events if isinstance(e, IncidentClosed)]
    assert [e.incident.kind for e in opened] == ["session_hung"]
    assert 10 * MINUTE <= opened[0].at - HANG.start <= 16 * MINUTE, "looked at each five minutes"
    assert [e.why for e in closed] == ["it went on by itself"] and closed[0].at > HANG.stop
