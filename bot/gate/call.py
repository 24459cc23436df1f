"""A call of the gate, and what every verb asks of it first."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass

from bot.gate.answer import DONE, FAILED, REFUSED, UNCLEAR, End
from bot.gate.log import Log
from bot.gate.settings import Settings
from bot.gate.slurm import Ran, Slurm


@dataclass(frozen=True, slots=True)
class Call:
    """What was asked, and all that is needed to answer."""

    verb: str
    target: str
    key: str
    reason: str
    why: str
    restart: int | None  # None: not given
    settings: Settings
    slurm: Slurm
    log: Log
    by: str

    def say(self, stage: str, **facts: object) -> None:
        entry = {"at": time.time(), "key": self.key, "verb": self.verb, "target": self.target, "stage": stage}
        self.log.append({**entry, "by": self.by, **facts})

    def began(self, stage: str) -> bool:
        return any(entry.get("stage") == stage for entry in self.log.of(self.key))

    def must_not_be_paused(self) -> None:
        why = paused(self.settings)
        if why is not None:
            raise End(REFUSED, f"paused: {why}", paused=True)

    def must_have_slot(self, stage: str) -> None:
        caps, used = self.settings.caps, self.log.writes(time.time() - self.settings.caps.window)
        if len(used) >= caps.writes and not self.began(stage):
            wait = int(min(used.values(), default=time.time()) + caps.window - time.time()) + 1
            raise End(REFUSED, f"{len(used)} writes in {caps.window} s, {caps.writes} are allowed; next in {wait} s")


def paused(settings: Settings) -> str | None:
    """Why writes are stopped, or None. A pause file that cannot be looked at stops them too."""
    try:
        return settings.pause_file.read_text(encoding="utf-8", errors="replace").strip()[:300] or "no reason given"
    except FileNotFoundError:
        return None
    except OSError as error:
        return f"{settings.pause_file}: {error.strerror}"


def must_match(pattern: re.Pattern[str], text: str, what: str) -> None:
    if not pattern.fullmatch(text):
        raise End(REFUSED, f"{what} {text[:60]!r} is not acceptable")


def done(detail: str, **facts: object) -> tuple[int, dict[str, object]]:
    return DONE, {"detail": detail, "ours": True, **facts}


def allows(allowed: frozenset[str], name: str) -> bool:
    return "*" in allowed or name in allowed


def not_done(ran: Ran, seen: str, **facts: object) -> End:
    """Read after the command: it has not happened. A refusal by Slurm is a failure, silence is unclear."""
    if ran.code:
        return End(FAILED, f"Slurm refused: {ran.said}", **facts)
    return End(UNCLEAR, f"Slurm said {ran.said!r}, but {seen}", **facts)
