"""What concerns the bot as a whole."""

from __future__ import annotations

from dataclasses import dataclass

from bot.model.plan import Mode


@dataclass(frozen=True, slots=True)
class Meta:
    """What concerns the bot as a whole. incidents: the highest number given so far."""

    incidents: int = 0
    paused_by: str = ""
    paused_why: str = ""
    version: str = ""
    policy: str = ""
    write_mode: Mode = "observe"
