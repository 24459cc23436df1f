"""Pages: what wants a person goes out through Alertmanager, whose routes already know whom to wake; and its silences
hold for us too.

What should fire follows from the state alone, so a restart loses nothing. Each alert lives three sending intervals and
is sent again before: a bot that dies stops paging, and Alertmanager resolves what nobody confirms.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Literal
from zoneinfo import ZoneInfo

from bot.alerts import OURS
from bot.errors import SourceError
from bot.model import Incident, Kind, Observation, Plan, Recovery, Session, SourceState
from bot.ports import Observer
from bot.sources.alertmanager import Api, Silence, Silences
from bot.state import State

log = logging.getLogger(__name__)

Severity = Literal["page", "warn"]
Alert = dict[str, Any]  # as API v2 takes it: labels, annotations, startsAt, endsAt

SOURCE = "alertmanager_api"  # among the sources; `alertmanager` is what its webhook tells
LIVES = 3  # sending intervals: two may be lost, as a scrape may
SILENCES_EVERY = 15  # s between looks: a person who silences something expects it to hold at once
GIVEN_UP_FOR = 86_400  # s a page for a run given up goes on: after a day the run counts as ended

# Kinds that want a person, with what is said of them; the others warn of something that may come, or only suggest.
WANTS: Mapping[Kind, tuple[Severity, str]] = {
    "gpu_fault": ("page", "GPU fault"),
    "session_failed": ("page", "the run has failed"),
    "session_hung": ("page", "the run hangs"),
    "storm": ("page", "many nodes at once"),
    "blind": ("page", "cannot be seen"),
    "checkpoint_stall": ("warn", "saving stalls"),  # the run goes on, slowly; if it stops, that is another incident
}
PERSON_KNOWS = frozenset({"approved", "done", "rejected"})  # ends of a plan after which nobody needs to be woken


@dataclass(frozen=True, slots=True)
class Paging:
    """The site's side of it. node_labels: where the node's name stands in the site's own alerts, so that silences and
    inhibitions on those labels reach ours. link: where the incident can be read. every: s between sendings. tz: of the
    times in words."""

    cluster: str
    node_labels: Sequence[str] = ()
    link: str = ""
    every: int = 60
    tz: str = "UTC"


# -- what should fire --------------------------------------------------------------------------------------------------


def alerts_of(state: State, now: int, paging: Paging) -> list[Alert]:
    """One for each incident that wants a person, and for a while one that says that it is over."""
    return [
        _alert(incident, severity, state, now, paging)
        for incident in sorted(state.all(Incident), key=lambda i: (i.id, i.episode))
        if (severity := severity_of(incident, state)) and _worth_telling(incident, state, now, paging)
    ]


def severity_of(incident: Incident, state: State) -> Severity | None:
    """None: it wants nobody. warn, not page: nothing runs there, or it is being mended, or a person knows of it."""
    wants = WANTS.get(incident.kind)
    if wants is None:
        return None
    if given_up(incident, state):
        return "page"
    calm = incident.acked_by or _idle(incident) or _in_hand(incident, state)
    return "warn" if calm else wants[0]


def _idle(incident: Incident) -> bool:
    """A broken node that no run is on, or one node's silent exporter: work for the morning."""
    if incident.kind == "gpu_fault":
        return not incident.hurt
    return incident.kind == "blind" and incident.subject.startswith("node:")


def _in_hand(incident: Incident, state: State) -> bool:
    """The newest plan acts by itself, or a person has decided on it."""
    plans = sorted((p for p in state.all(Plan) if p.tag == incident.tag), key=lambda p: (p.proposed, p.id))
    newest = plans[-1] if plans else None
    return newest is not None and (
        newest.status in PERSON_KNOWS or (newest.status == "proposed" and newest.due is not None)
    )


def given_up(incident: Incident, state: State) -> bool:
    """A run that we no longer try to bring back is down, and nobody else has."""
    lost = [r.session for r in state.all(Recovery) if r.tag == incident.tag and r.outcome == "given_up"]
    sessions = [found for key in lost if (found := state.find(Session, key))]
    return any(s.ended_at is None and not (s.latest and s.latest.alive) for s in sessions) and not incident.acked_by


def _firing(incident: Incident, state: State, now: int) -> bool:
    if incident.closed is None:
        return True
    return now - incident.closed < GIVEN_UP_FOR and given_up(incident, state)


def _worth_telling(incident: Incident, state: State, now: int, paging: Paging) -> bool:
    just_closed = incident.closed is not None and now - incident.closed < LIVES * paging.every
    return just_closed or _firing(incident, state, now)


def _alert(incident: Incident, severity: Severity, state: State, now: int, paging: Paging) -> Alert:
    over = incident.closed if incident.closed is not None else now
    ends = now + LIVES * paging.every if _firing(incident, state, now) else max(over, incident.opened)
    return {
        "labels": {**labels_of(incident, paging), "severity": severity},
        "annotations": _annotations(incident, state, paging),
        "startsAt": _moment(incident.opened),
        "endsAt": _moment(ends),
    }


def labels_of(incident: Incident, paging: Paging) -> dict[str, str]:
    """All but the severity, and the same for the whole episode: they are what the alert is."""
    return {
        "alertname": "Xidbot" + incident.kind.title().replace("_", ""),
        "source": OURS,
        "cluster": paging.cluster,
        "incident": incident.tag,
        "subject": incident.subject.removeprefix("node:"),
        **_where(incident, paging),
    }


def _where(incident: Incident, paging: Paging) -> dict[str, str]:
    """The node under each name that the site's alerts give it, or the session."""
    if incident.kind in ("gpu_fault", "precursor") or incident.subject.startswith("node:"):
        return dict.fromkeys(("node", *paging.node_labels), incident.subject.removeprefix("node:"))
    return {"session": incident.subject} if incident.subject.startswith("session-") else {}


def _annotations(incident: Incident, state: State, paging: Paging) -> dict[str, str]:
    reasons = [reason.text or reason.signal for reason in incident.reasons]
    about = WANTS[incident.kind][1]
    summary = f"{incident.subject.removeprefix('node:')}: {reasons[0] if reasons else about}"
    runs = [session.name for key in incident.hurt if (session := state.find(Session, key))]
    lines = [about[0].upper() + about[1:], *reasons, *incident.said]
    lines += [f"runs hurt: {', '.join(runs)}" if runs else ""]
    lines += ["acknowledged" if incident.acked_by else "", f"xidbot why {incident.id} tells more"]
    told = {"summary": summary, "description": "; ".join(filter(None, lines)), "link": paging.link}
    return {name: text for name, text in told.items() if text}


def _plain(text: str) -> str:
    """What somebody typed elsewhere: no control characters, which are marks in our messages, and no essay."""
    return "".join(c for c in text if c.isprintable())[:80] or "?"


def _moment(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat().replace("+00:00", "Z")


# -- sending it --------------------------------------------------------------------------------------------------------


@dataclass
class Pager:
    """Keeps Alertmanager told, and knows what it silences. pages False: only the silences. looked: it has been asked,
    with or without success. One thread turns it; any may look."""

    alertmanager: Api
    paging: Paging
    pages: bool = True
    silences: Silences = Silences()  # as far as they can be read now
    problem: str = ""
    looked: bool = False
    _last: Silences = Silences()  # when they could be read last
    _sent: Mapping[str, Alert] = field(default_factory=dict)  # by labels, what fires there as far as we know
    _sent_at: int | None = None
    _read_at: int | None = None

    def turn(self, state: State, now: int) -> None:
        """What could not be done is in `problem`, and tried again at the next turn."""
        try:
            problems = [self._in(self._read, state, now)]
        finally:
            self.looked = True  # whatever came of it: nobody waits for more
        problems += [self._in(self._post, state, now)] if self.pages else []
        problem = "; ".join(dict.fromkeys(filter(None, (*problems, *self.silences.unread))))
        if problem != self.problem:
            log.warning("alertmanager: %s", problem or "all is well again")
        self.problem = problem

    def silenced(self, incident: Incident, state: State) -> Silence | None:
        """The silence that the incident's page falls under, if any. None also while they cannot be read: rather once
        too often than never."""
        return self.silences.matching(self._labels(incident, state))

    def lasts(self, incident: Incident, state: State, now: int) -> bool:
        """A silence that it was seen under goes on. While they cannot be read it does until its end: who was not called
        then need not be called only because Alertmanager restarts."""
        known = self._last.matching(self._labels(incident, state))
        return known is not None and now < known.endsAt

    def _labels(self, incident: Incident, state: State) -> dict[str, str]:
        return {**labels_of(incident, self.paging), "severity": severity_of(incident, state) or "warn"}

    def silence(self, incident: Incident, state: State) -> str:
        """The same in words; empty without one."""
        found = self.silenced(incident, state)
        if found is None:
            return ""
        by, why = _plain(found.createdBy), _plain(found.comment)
        until = datetime.fromtimestamp(found.endsAt, ZoneInfo(self.paging.tz))
        return f"silenced in Alertmanager by {by} for {why} until {until:%a %d %b %H:%M}"

    def health(self) -> SourceState:
        return SourceState(SOURCE, self.problem)

    def _in(self, do: Callable[[State, int], None], state: State, now: int) -> str:
        try:
            do(state, now)
        except SourceError as error:
            return str(error).removeprefix(f"{error.source}: ")
        return ""

    def _post(self, state: State, now: int) -> None:
        wanted = {str(sorted(alert["labels"].items())): alert for alert in alerts_of(state, now, self.paging)}
        gone = {key: alert for key, alert in self._sent.items() if key not in wanted and alert["endsAt"] > _moment(now)}
        ended = [{**alert, "endsAt": _moment(now)} for alert in gone.values()]
        due = self._sent_at is None or now - self._sent_at >= self.paging.every
        if not due and not ended and _meant(wanted, now) == _meant(self._sent, now):
            return
        if wanted or ended:
            self.alertmanager.post([*wanted.values(), *ended])
        self._sent, self._sent_at = wanted, now

    def _read(self, state: State, now: int) -> None:
        """What cannot be read silences nothing."""
        if self._read_at is not None and now - self._read_at < SILENCES_EVERY:
            return
        try:
            self.silences = self._last = self.alertmanager.silences()
            self._read_at = now
        except SourceError:
            self.silences, self._read_at = Silences(), None
            raise


@dataclass(frozen=True, slots=True)
class WithPager:
    """An observer that also tells whether Alertmanager can be used: while nobody can be paged, that is an incident."""

    observer: Observer
    pager: Pager

    def observe(self, now: int) -> Observation:
        seen = self.observer.observe(now)
        return replace(seen, sources=(*seen.sources, self.pager.health()))


def _meant(alerts: Mapping[str, Alert], now: int) -> Mapping[str, Any]:
    """What is said, but for when it is to be said again."""
    return {key: (alert["annotations"], alert["endsAt"] > _moment(now)) for key, alert in alerts.items()}
