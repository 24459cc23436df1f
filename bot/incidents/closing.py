"""What ends an incident, by its kind."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from bot import events as ev
from bot.incidents.nodes import close_fault, close_precursor
from bot.incidents.runs import close_failed
from bot.incidents.sources import close_blind
from bot.incidents.storm import close_storm
from bot.model import Incident, Kind, Observation
from bot.policy import Policy
from bot.state import Draft

Close = Callable[[Draft, Incident, Observation, Policy], str]

CLOSES: Mapping[Kind, Close] = {
    "storm": close_storm,
    "gpu_fault": close_fault,
    "precursor": close_precursor,
    "session_failed": close_failed,
    "session_hung": close_failed,  # where it is followed by a recovery; see hangs
    "blind": close_blind,
}


def close(draft: Draft, seen: Observation, policy: Policy) -> None:
    for incident in draft.state.open_incidents():
        why = CLOSES[incident.kind](draft, incident, seen, policy) if incident.kind in CLOSES else ""
        if why:
            draft.emit(ev.IncidentClosed(draft.at, incident.id, incident.episode, why))
