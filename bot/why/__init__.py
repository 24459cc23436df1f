"""How far xidbot has come with a run, a node or an incident, and what is missing: a line of evidence a stage. Pure."""

from bot.why.stages import Stage, explain, told
from bot.why.topic import REMEDIES

__all__ = ["REMEDIES", "Stage", "explain", "told"]
