"""How a run gets on by its own log: what that log shows counts beside what the nodes show. Pure.

A new step in the log is progress like the trainer's own word. That a log merely grows is less: a watchdog writes while
the run hangs, so it counts only where nothing else tells. Silence counts once it is longer than any that this log has
got out of.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from bot.model import LogGrowth, Observation, Progress
from bot.policy import Policy

LOG = "job_log"
LOOK = 900  # s; what moved before that says nothing of now: as far as one look at the metrics sees
STALE = 300  # s after which a look at a log says nothing of now; one comes each minute
SHORT = 180  # s; a shorter silence is a line that comes late


def with_logs(seen: Observation, policy: Policy) -> Mapping[str, Progress]:
    """Attempt → how it gets on. Without metrics nobody knows what excuses a silence, so nothing is told."""
    logs = {log.run: log for log in seen.logs if seen.at - log.looked <= STALE}
    return {p.run: _joined(p, logs.get(p.run), seen.at, policy) for p in seen.progress}


def _joined(progress: Progress, log: LogGrowth | None, at: int, policy: Policy) -> Progress:
    if log is None:
        return progress
    alone = not progress.measured
    if alone or log.step is not None:
        progress = _moving(progress, log, at)
    if progress.phase or not _is_silent(progress, log, policy):
        return progress
    usual = min(log.longest, policy.numbers.progress.pause_most)
    if alone:
        return replace(progress, idle_since=log.moved, by=(LOG,), signs=(_sign(log),), pause=usual)
    if progress.by:
        return replace(progress, by=(*progress.by, LOG), signs=(*progress.signs, _sign(log)), pause=usual)
    return progress


def _moving(progress: Progress, log: LogGrowth, at: int) -> Progress:
    if at - log.moved > LOOK:
        return replace(progress, measured=True)
    idle = progress.idle_since
    return replace(
        progress,
        measured=True,
        moves=tuple(sorted({*progress.moves, LOG})),
        moved_at=max(progress.moved_at or 0, log.moved),
        idle_since=max(idle, log.moved) if idle is not None else None,
    )


def _is_silent(progress: Progress, log: LogGrowth, policy: Policy) -> bool:
    """Before its first step a run loads, and says nothing for as long as that takes."""
    numbers = policy.numbers
    begun = log.step is not None or progress.age >= 2 * numbers.recovery.load_time
    known = log.times >= numbers.progress.log_known_after
    return begun and known and log.looked - log.moved > max(SHORT, log.longest)


def _sign(log: LogGrowth) -> tuple[str, str]:
    before = f"{log.longest // 60} min" if log.longest >= 120 else f"{log.longest} s"
    now = f"stands at step {log.step:,}" if log.step is not None else "is silent"
    return LOG, f"its log, which paused {before} at most, {now}"
