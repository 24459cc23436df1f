"""What really happened, beside who ran where and what a backtest is given (bot/backtest_files.py)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from bot.backtest_files import Label

Category = Literal["bus", "nvlink", "ecc", "gsp", "thermal", "power", "host", "fabric"]
Verdict = Literal["client_slots", "server", "node_path", "link", "metadata", "unknown"]


@dataclass(frozen=True, slots=True)
class Failure:
    """Hardware that failed, until it was back in service. gpu None = the node; xid None = no error code told of it."""

    node: str
    gpu: int | None
    category: Category
    xid: int | None
    start: int
    end: int
    shape: str = ""  # which of the shapes it was

    @property
    def label(self) -> Label:
        gpu = "" if self.gpu is None else str(self.gpu)
        return Label(self.node, gpu, self.category, self.xid, self.start, self.end)


@dataclass(frozen=True, slots=True)
class ApplicationFault:
    """An Xid that the program caused; the hardware is well."""

    node: str
    gpu: int
    xid: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Nuisance:
    """Something that only looks like trouble, or is trouble of another kind. nodes empty = everywhere."""

    kind: str
    nodes: tuple[str, ...]
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Save:
    """A checkpoint of a job that was completed."""

    job: str
    step: int
    start: int
    end: int
