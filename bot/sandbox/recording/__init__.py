"""A cluster's history with all that breaks in it, as exporters would have told it, and with the truth beside it."""

from bot.sandbox.recording.recording import Recording

__all__ = ["Recording"]
