"""From scores, sources and sessions to incidents: what opens one, what changes it, what ends it. Pure."""

from bot.incidents.closing import close
from bot.incidents.episodes import annotate, open_incident, open_new
from bot.incidents.nodes import see_nodes
from bot.incidents.runs import see_failed_runs, see_notes
from bot.incidents.sources import see_blindness, see_readings, see_sources

__all__ = [
    "annotate",
    "close",
    "open_incident",
    "open_new",
    "see_blindness",
    "see_failed_runs",
    "see_nodes",
    "see_notes",
    "see_readings",
    "see_sources",
]
