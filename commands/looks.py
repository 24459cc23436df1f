"""Commands that only look."""

from __future__ import annotations

from bot.model import Incident, Plan, Recovery, Session
from bot.state import State
from commands import BY_NAME, COMMANDS, find
from commands.run import Asked, Reply


def incidents(asked: Asked) -> Reply:
    state = asked.services.state
    if asked.words:
        return Reply("\n".join(_whole(find.incident(state, asked.words[0]), state)))
    rows = [_line(i, state) for i in state.open_incidents()]
    if not rows:
        return Reply(f"No open incident. {len(state.live_sessions())} runs under care.{_paused(state)}")
    return Reply("\n".join(rows) + _paused(state))


def _paused(state: State) -> str:
    return f"\nPaused by {state.meta.paused_by}: {state.meta.paused_why}" if state.meta.paused_by else ""


def _line(incident: Incident, state: State) -> str:
    hurt = ", ".join(state.get(Session, key).name for key in incident.hurt) or "no run hurt"
    waits = [p.id for p in state.all(Plan) if p.tag == incident.tag and p.status == "proposed" and p.mode == "approve"]
    asks = f" · waits for `approve {waits[0]}`" if waits else ""
    seen = f" · seen by {incident.acked_by}" if incident.acked_by else ""
    return f"*{incident.id}* {incident.kind} {incident.subject} · {hurt}{seen}{asks}"


def _whole(incident: Incident, state: State) -> list[str]:
    lines = [_line(incident, state)]
    lines += [
        f"• {r.text or r.signal} (evidence {r.evidence:.2f}{', hard' if r.hard else ''})" for r in incident.reasons
    ]
    lines += [f"• {said}" for said in incident.said]
    log = "\n".join(incident.log[-6:]).replace("`", "\u02cb")
    lines += [f"```\n{log}\n```"] if log else []
    for recovery in (r for r in state.all(Recovery) if r.tag == incident.tag):
        session = state.get(Session, recovery.session)
        lines.append(f"• {session.name}: {recovery.outcome or 'open'}, {len(recovery.chain)} attempts since")
    lines += [f"• closed: {incident.closed_why}"] if incident.closed is not None else []
    return lines


def show_help(asked: Asked) -> Reply:
    if asked.words and asked.words[0] in BY_NAME:
        row = BY_NAME[asked.words[0]]
        return Reply(f"`{row.usage}` ({row.role}) {row.help}\nFor example `{row.example}`")
    return Reply("\n".join(f"`{_typed(c.slack, c.usage)}` {c.help} _{c.role}_" for c in COMMANDS))


def _typed(slack: str, usage: str) -> str:
    return f"/{usage}" if slack != "/xid" else f"/xid {usage}"
