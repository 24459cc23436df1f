"""From the words people type to the things they mean. Exact, or an error that names the nearest."""

from __future__ import annotations

import difflib

from bot.errors import UsageError
from bot.model import Incident, Plan, Session
from bot.state import State


def session(state: State, word: str) -> Session:
    """`session-123`, or any of a run's job ids. Raises UsageError for none or several."""
    live = state.live_sessions()
    found = [s for s in live if word == s.name or word.removeprefix("session-") in s.jobs]
    if len(found) == 1:
        return found[0]
    if found:
        raise UsageError(f"`{word}` is ambiguous: {', '.join(s.key for s in found)}", "name its newest job id")
    ended = next((s for s in state.all(Session) if word == s.name or word.removeprefix("session-") in s.jobs), None)
    if ended:
        raise UsageError(f"{ended.name} has ended: {ended.ended}")
    near = difflib.get_close_matches(word, [s.name for s in live], n=1)
    hint = f"did you mean {near[0]}?" if near else f"{len(live)} runs are under xidbot's care"
    raise UsageError(f"no run `{word[:60]}` is under xidbot's care", hint)


def incident(state: State, word: str) -> Incident:
    """`412`, or an episode `412.1`; the newest episode of a number."""
    found = [i for i in state.all(Incident) if word in (str(i.id), i.tag)]
    if not found:
        numbers = ", ".join(str(i.id) for i in state.open_incidents()) or "none"
        raise UsageError(f"no incident `{word[:40]}`", f"open ones: {numbers}")
    return max(found, key=lambda i: i.episode)


def plan(state: State, word: str) -> Plan:
    """`412.1.1`, or the one plan of incident `412` that waits."""
    exact = state.find(Plan, word) if word.count(".") == 2 else None
    if exact:
        return exact
    tag = incident(state, word).tag
    waiting = [p for p in state.all(Plan) if p.tag == tag and p.status == "proposed"]
    if len(waiting) != 1:
        names = ", ".join(p.id for p in waiting) or "none waits"
        raise UsageError(f"incident {tag} has no single plan to decide", names)
    return waiting[0]
