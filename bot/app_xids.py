"""Xids that are the application's, GPU by GPU, as the exporters show them: for sites without kernel logs, and for the
past. A log outranks it, because a gauge that shows the same code again shows nothing new."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace

from bot.model import AppXid, Reading
from bot.policy import Policy
from bot.ports import MetricSource, XidSource

SIGNAL = "xid_restart_app"  # of the catalogue: on which nodes there is one
JUST = 300  # s that its query looks back for a change


def app_xids(
    source: MetricSource, policy: Policy, readings: Iterable[Reading], at: int, nodes: Collection[str]
) -> tuple[AppXid, ...]:
    """What has come up within the last minutes; nothing is asked where no node shows any. Raises SourceError."""
    signal = policy.signals.get(SIGNAL)
    since = {r.node: r.since for r in readings if r.signal == SIGNAL and r.state == "bad"}
    if not since or signal is None or not isinstance(source, XidSource):
        return ()
    told = source.xids(signal, at, nodes)
    return tuple(replace(x, at=_began(since[x.node], at)) for x in told if x.node in since)


def _began(since: int | None, at: int) -> int:
    """A reading stays bad for longer than a change is seen: what is seen after that is another one."""
    return since if since is not None and at - since <= JUST else at
