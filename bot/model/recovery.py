"""How a run comes back: its chain of attempts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from bot.model.scheduler import Origin


@dataclass(frozen=True, slots=True)
class Link:
    """One attempt of a recovery's chain and what came of it; three separate facts."""

    attempt: str
    started: int
    origin: Origin | None = None
    ended: int | None = None
    end_state: str = ""
    failed_why: str = ""
    regained: int | None = None
    verified: bool = False
    step: int | None = None
    survived: int | None = None


ChainClass = Literal["automated", "assisted", "manual", "scheduler", "takeover", "in_job", "mixed", "none"]


@dataclass(frozen=True, slots=True)
class Recovery:
    """From when progress stopped to regained, given up or cancelled; open ones are censored.

    last_step: the best step before the failure; a rerun has regained only beyond it.
    """

    id: str
    incident: int
    episode: int
    session: str
    stopped: int
    failed_attempt: str
    last_step: int | None = None
    chain: tuple[Link, ...] = ()
    regained: int | None = None
    survived: int | None = None
    ended: int | None = None
    outcome: str = ""  # survived, given_up, cancelled, censored, moved (to the incident that explains it)
    why: str = ""
    chain_class: ChainClass | None = None

    @property
    def tag(self) -> str:
        return f"{self.incident}.{self.episode}"
