"""From the state to the messages it should show. Pure; times are shown as times, never as ages, so that a message is
edited only when something has happened."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from bot import events as ev
from bot.model import Action, Answer, Attempt, Hold, Incident, Link, Plan, Recovery, Session
from bot.plans import spoken
from bot.policy import Policy
from bot.stalls import gpu_hours
from bot.state import State
from bot.storage.words import cause, words
from templates import Mrkdwn, render
from templates.blocks import Button, Card
from templates.cut import cut_end

MAX_HURT = 5  # sessions named in a message; the rest are counted
MAX_SAID = 300  # characters of one sentence, so that no sentence pushes the next line out of sight
WARNINGS = ("precursor", "session_slow")  # nothing is lost yet, or not all
MAX_LOG = 6  # lines of a job's log


@dataclass(frozen=True, slots=True)
class Hurt:
    """One run as the message tells it."""

    session: Session
    recovery: Recovery | None

    @property
    def latest(self) -> Attempt | None:
        return self.session.latest

    @property
    def link(self) -> Link | None:
        return self.recovery.chain[-1] if self.recovery and self.recovery.chain else None

    @property
    def lost_seconds(self) -> int:
        """From when progress stopped to the new checkpoint."""
        regained = self.recovery.regained if self.recovery else None
        return max(0, regained - self.recovery.stopped) if self.recovery and regained is not None else 0


@dataclass(frozen=True, slots=True)
class View:
    """Everything a template may use of one incident."""

    incident: Incident
    hurt: tuple[Hurt, ...]
    more_hurt: int
    plan: Plan | None
    failed_plan: Plan | None
    hold: Hold | None
    done: tuple[Action, ...]
    earlier: int
    mode: str
    tz: str
    icon: str

    @property
    def asks(self) -> bool:
        return self.plan is not None and self.plan.status == "proposed" and self.plan.mode in ("approve", "veto")

    @property
    def under_way(self) -> bool:
        return any(h.link and h.link.ended is None for h in self.hurt)

    @property
    def given_up(self) -> bool:
        return any(h.recovery and h.recovery.outcome == "given_up" for h in self.hurt)

    @property
    def still(self) -> bool:
        """The run is there and does nothing."""
        return self.incident.kind == "session_hung" and self.incident.quiet_since is None

    @property
    def waiting_gpus(self) -> int:
        """GPUs of runs that stand still."""
        return sum(h.session.gpus for h in self.hurt if self.still or (h.latest and not h.latest.alive))


def view(incident: Incident, state: State, policy: Policy, tz: str) -> View:
    plans = sorted((p for p in state.all(Plan) if p.tag == incident.tag), key=lambda p: (p.proposed, p.id))
    plan = plans[-1] if plans else None
    hurt = [Hurt(state.get(Session, key), _recovery(state, incident, key)) for key in incident.hurt]
    before = [i for i in state.all(Incident) if i.kind == incident.kind and i.subject == incident.subject]
    return View(
        incident=incident,
        hurt=tuple(hurt[:MAX_HURT]),
        more_hurt=max(0, len(hurt) - MAX_HURT),
        plan=plan,
        failed_plan=next((p for p in reversed(plans) if p.status == "failed"), None),
        hold=next((h for h in state.our_holds() if h.node == incident.subject), None),
        done=tuple(a for a in state.all(Action) if a.cause == incident.tag and a.end is not None),
        earlier=sum(1 for i in before if (i.id, i.episode) < (incident.id, incident.episode)),
        mode=policy.write_mode,
        tz=tz,
        icon=_icon(incident, plan, hurt),
    )


def _recovery(state: State, incident: Incident, session: str) -> Recovery | None:
    return next((r for r in state.all(Recovery) if r.tag == incident.tag and r.session == session), None)


def _icon(incident: Incident, plan: Plan | None, hurt: list[Hurt]) -> str:
    """Red: harm is being done. Yellow: under way, or only a warning. Green: over."""
    if incident.closed is not None:
        given_up = any(h.recovery and h.recovery.outcome == "given_up" for h in hurt)
        return ":black_circle:" if given_up else ":large_green_circle:"
    started = plan is not None and plan.status in ("approved", "done")
    over = incident.stall is not None and incident.stall.ended is not None
    under_way = started or over or any(h.link and h.link.ended is None for h in hurt)
    return ":large_yellow_circle:" if under_way or incident.kind in WARNINGS else ":red_circle:"


def incident_card(incident: Incident, state: State, policy: Policy, tz: str) -> Card:
    shown = view(incident, state, policy, tz)
    stall = words(incident.stall, gpu_hours(state, incident.stall)) if incident.stall else None
    told = {"said": _said(incident), "log": "\n".join(incident.log[-MAX_LOG:]), "unlike": _unlike(incident, policy)}
    text = render("incident.md.j2", v=shown, kind=incident.kind, steps=_steps(shown.plan), stall=stall, **told)
    *paragraphs, footer = text
    return Card(f"{incident.tag}.main", tuple(paragraphs), _buttons(shown), footer.removeprefix("footer: "))


def _said(incident: Incident) -> list[str]:
    """The note without the log's own lines: what was said first, and the newest of what came after."""
    first, *later = incident.said or ("",)
    return [cut_end(line, MAX_SAID) for line in (first, *later[-2:]) if line]


def _unlike(incident: Incident, policy: Policy) -> bool:
    """All that stands against the node is that others of its run, or its own past, look different."""
    kinds = {policy.signals[r.signal].evidence.kind for r in incident.reasons if r.signal in policy.signals}
    return bool(kinds) and kinds <= {"peers", "past"}


def _steps(plan: Plan | None) -> str:
    """`drain node-17, then requeue job 9041`."""
    return ", then ".join(spoken(a) for a in plan.actions) if plan else ""


def _buttons(shown: View) -> tuple[Button, ...]:
    incident, plan = shown.incident, shown.plan
    if incident.closed is not None:
        return ()
    seen = () if incident.acked_by else (Button("ack", "Acknowledge", incident.tag),)
    if plan is None or plan.status != "proposed" or plan.mode not in ("approve", "veto"):
        return seen
    doing = " and ".join(dict.fromkeys(spoken(a).split()[0] for a in plan.actions))
    confirm = f"This will {_steps(plan)}. Running steps since the last checkpoint are lost."
    approve = Button("approve", f"Approve: {doing}", plan.id, "primary", confirm)
    return (approve, Button("reject", "Reject" if plan.mode == "approve" else "Stop it", plan.id), *seen)


# -- the story in the thread ----------------------------------------------------------------------


def _started(e: ev.RecoveryStarted, state: State) -> str:
    session = state.get(Session, e.recovery.session)
    step = f", best step {e.recovery.last_step:,}" if e.recovery.last_step is not None else ""
    return f"{session.name}: recovery begins; the hurt attempt is {e.recovery.failed_attempt}{step}."


def _changed(e: ev.IncidentChanged, state: State) -> str:
    reasons = ", ".join(r.text or r.signal for r in e.reasons)
    said = replace(state.get(Incident, f"{e.incident}.{e.episode}"), note=e.note).said
    parts = [f"Evidence now: {reasons}"] if reasons else []
    return ". ".join([*parts, *said[-1:]]) + "."


def _stall(e: ev.StallChanged, state: State) -> str:
    if e.stall.ended is None:
        return f"{cause(e.stall)}. Numbers now: {', '.join(words(e.stall).numbers) or 'none measured'}."
    hours = gpu_hours(state, e.stall)
    return f"The stall is over{f'; it cost up to {hours:,.1f} idle GPU-hours' if hours else ''}."


def _plan(e: ev.PlanProposed, state: State) -> str:
    why = f" ({e.plan.why})" if e.plan.why else ""
    return f"Plan {e.plan.id}, mode {e.plan.mode}: {_steps(e.plan)}{why}. Fit: {e.plan.fit or 'not asked'}."


def _decided(e: ev.PlanDecided, state: State) -> str:
    person = e.status in ("approved", "rejected") and e.by not in ("", "xidbot")
    return f"Plan {e.plan} {e.status}{f' by {mention(e.by)}' if person else ''}{f': {e.why}' if e.why else ''}."


def _reminded(e: ev.PlanReminded, state: State) -> str:
    plan = state.get(Plan, e.plan)
    if e.who == "secondary":
        return f"Plan {e.plan} has expired and nothing was done. Secondary, please look."
    return f"Plan {e.plan} still waits: {_steps(plan)}."


def _action(e: ev.ActionEnded, state: State) -> str:
    action = state.get(Action, e.key)
    return f"{spoken(action)}: {e.end}{f', {e.detail}' if e.detail else ''}."


def _link(e: ev.LinkChanged, state: State) -> str:
    link = e.link
    if link.survived is not None:
        return f"{link.attempt} survived."
    if link.regained is not None:
        step = f"step {link.step:,}" if link.step is not None else "a checkpoint without a step"
        return f"{link.attempt} regained: {step}{'' if link.verified else ' (unverified)'}."
    if link.ended is not None:
        return f"{link.attempt} ended {link.end_state} before it had regained."
    if link.failed_why:
        return f"{link.attempt}: {link.failed_why}."
    who = f", {link.origin}" if link.origin else ""
    return f"{link.attempt} is running{who}."


def _ended(e: ev.RecoveryEnded, state: State) -> str:
    return f"Recovery ended: {e.outcome} ({e.why}), class {e.chain_class}."


def _acked(e: ev.IncidentAcknowledged, state: State) -> str:
    return f"{mention(e.by)} has seen it."


def _closed(e: ev.IncidentClosed, state: State) -> str:
    return f"Closed: {e.why}."


# One place per kind of event that belongs in the thread; what is not here is in the log only.
STORY: Mapping[type[ev.Event], Callable[..., str]] = {
    ev.IncidentChanged: _changed,
    ev.StallChanged: _stall,
    ev.IncidentAcknowledged: _acked,
    ev.IncidentClosed: _closed,
    ev.RecoveryStarted: _started,
    ev.LinkChanged: _link,
    ev.RecoveryEnded: _ended,
    ev.PlanProposed: _plan,
    ev.PlanDecided: _decided,
    ev.PlanReminded: _reminded,
    ev.ActionEnded: _action,
}


def mention(user: str) -> str:
    """A marker that survives escaping; `story_card` turns it into a mention."""
    return f"\x02{user}\x03"


def story_card(tag: str, slot: str, lines: list[str]) -> Card:
    return Card(f"{tag}.{slot}", tuple(render("story.md.j2", lines=[_mentions(line) for line in lines])))


def _mentions(line: str) -> Mrkdwn:
    from templates import escape, person

    parts: list[str] = []
    for i, piece in enumerate(line.replace("\x03", "\x02").split("\x02")):
        parts.append(str(person(piece)) if i % 2 else escape(piece))
    return Mrkdwn("".join(parts))


def answer_card(answer: Answer) -> Card:
    """Replies are mrkdwn of ours without mentions or links: whatever else looks like one was typed by somebody."""
    mark = "" if answer.ok else ":no_entry: "
    said = answer.reply.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return Card(f"r{answer.request}.reply", (f"{mark}{said}",))


def needs_mention(event: ev.Event) -> bool:
    """What wakes somebody: a question, a reminder, a run given up. Everything else is read, not heard."""
    if isinstance(event, ev.PlanProposed):
        return event.plan.mode in ("approve", "veto")
    if isinstance(event, ev.RecoveryEnded):
        return event.outcome == "given_up"
    return isinstance(event, ev.PlanReminded)


__all__ = ["STORY", "answer_card", "incident_card", "needs_mention", "story_card", "view"]
