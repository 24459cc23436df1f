"""What the log adds up to. PROJECT[type(event)] is the only thing that changes it, live, on rebuild and in a replay."""

from bot.state.documents import BY_CLASS, BY_NAME, KINDS
from bot.state.projections import PROJECT
from bot.state.state import Draft, State, fold

__all__ = ["BY_CLASS", "BY_NAME", "KINDS", "PROJECT", "Draft", "State", "fold"]
