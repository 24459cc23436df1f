"""Commands to the world and what they report."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Argv:
    """A gate verb with its operands."""

    verb: str
    operands: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Done:
    """The world is already as the action wants it. ours: by the action itself, else by somebody else."""

    ours: bool
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Wait:
    """Not yet: ask again (a job is still stopping)."""

    why: str


@dataclass(frozen=True, slots=True)
class Unclear:
    """Nobody can tell from here what to do; a person must look."""

    why: str


Next = Argv | Done | Wait | Unclear


@dataclass(frozen=True, slots=True)
class Report:
    """What the gate said: 0 done, 3 already satisfied, 4 refused, 5 failed, 6 unclear."""

    exit: int
    body: Mapping[str, object]

    @property
    def text(self) -> str:
        return str(self.body.get("reason") or self.body.get("detail") or "")


@dataclass(frozen=True, slots=True)
class Fit:
    """Whether a job could run again without some nodes. `nodes` are those that could take it."""

    ok: bool
    needed: int
    nodes: tuple[str, ...]
    why: str = ""
