"""decide(state, seen, policy): the whole of xidbot's thinking, as a list of stages. Pure: no clock, no I/O."""

from __future__ import annotations

from collections.abc import Callable

from bot import hangs, incidents, plans, recovery, repeats, saves, sessions, stalls
from bot.events import Event
from bot.model import Observation
from bot.policy import Policy
from bot.state import Draft, State

Stage = Callable[[Draft, Observation, Policy], None]

STAGES: tuple[Stage, ...] = (
    sessions.see_sessions,
    sessions.see_checkpoints,
    saves.see_saves,
    incidents.see_readings,
    incidents.see_sources,
    incidents.see_nodes,
    incidents.see_blindness,
    incidents.see_failed_runs,
    incidents.see_notes,
    stalls.see_stalls,
    hangs.see_progress,
    recovery.follow,
    plans.review,
    plans.propose,
    plans.review,  # what is to happen at once (auto) happens in the same round
    incidents.close,
)


def decide(state: State, seen: Observation, policy: Policy) -> list[Event]:
    """Everything that follows from what is seen now; applying it to `state` and deciding again adds nothing."""
    draft = Draft(state, seen.now, policy.hash)
    seen = repeats.judged(draft, seen, policy)
    for stage in STAGES:
        stage(draft, seen, policy)
    return draft.events
