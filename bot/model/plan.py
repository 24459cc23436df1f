"""What is to be done, by whose leave, and what came of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from bot.model.scheduler import Origin

Mode = Literal["observe", "suggest", "approve", "veto", "auto"]
MODES: tuple[Mode, ...] = ("observe", "suggest", "approve", "veto", "auto")


@dataclass(frozen=True, slots=True)
class NodeFact:
    """What an approval takes for granted of one node."""

    name: str
    up: bool
    holders: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Facts:
    """What an approval is bound to: never a score. Checked again at the click and by the actor."""

    session: str
    attempt: str
    owner: str
    controller: str
    nodes: tuple[NodeFact, ...]
    hard: tuple[str, ...]
    checkpoint_step: int | None
    checkpoint_at: int | None
    steps: tuple[str, ...]


ActionEnd = Literal["done", "already", "expired", "superseded", "abandoned", "refused", "failed", "unclear"]


@dataclass(frozen=True, slots=True)
class Action:
    """A change to the world, keyed (cause, step, target, attempt): one key happens once."""

    cause: str  # incident tag, or r<request>
    step: str
    target: str
    attempt: str = ""
    session: str = ""
    plan: str = ""
    origin: Origin = "auto"
    by: str = "xidbot"
    why: str = ""
    review: int | None = None
    wanted: int = 0
    not_before: int = 0
    expires: int | None = None
    started: int | None = None
    argv: tuple[str, ...] = ()
    tries: int = 0
    ended: int | None = None
    end: ActionEnd | None = None
    detail: str = ""

    @property
    def key(self) -> str:
        return ":".join((self.cause, self.step, self.target, self.attempt or "-"))


PlanStatus = Literal["proposed", "approved", "rejected", "expired", "voided", "done", "failed"]


@dataclass(frozen=True, slots=True)
class Plan:
    """Actions that are approved together. due: when it acts by itself (veto, auto), else None."""

    id: str
    incident: int
    episode: int
    playbook: str
    session: str
    mode: Mode
    actions: tuple[Action, ...]
    facts: Facts
    proposed: int
    expires: int | None = None
    due: int | None = None
    status: PlanStatus = "proposed"
    decided: int | None = None
    by: str = ""
    why: str = ""
    fit: str = ""  # what the scheduler's nodes allow, as it was when proposed
    reminded: int = 0

    @property
    def tag(self) -> str:
        return f"{self.incident}.{self.episode}"


@dataclass(frozen=True, slots=True)
class Hold:
    """Our reason to keep a node from new work. review is not a release date: release needs proof."""

    node: str
    tag: str
    why: str
    by: str
    since: int
    review: int | None = None
    released: int | None = None
    proof: str = ""

    @property
    def id(self) -> str:
        return f"{self.node}@{self.tag}"
