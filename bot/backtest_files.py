"""What a backtest is given beside the metrics: who ran where, and what truly failed. CSV with a header line.

Times are RFC 3339 (`2026-11-30T20:35:01Z`) or Unix seconds; an empty end means that it still lasts.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import TypeVar

from bot.errors import BadReply, ConfigError
from bot.markers import TOO_LARGE
from bot.moments import rfc3339
from bot.slurm_records import parse_hostlist

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Run:
    """One attempt of a session. state: the scheduler's word for how it ended, as `FAILED`; empty = unknown."""

    session: str
    job: str
    nodes: tuple[str, ...]
    start: int
    end: int | None
    state: str = ""


@dataclass(frozen=True, slots=True)
class Label:
    """One true failure. xid None: it had no code. gpu empty: not of a single GPU."""

    node: str
    gpu: str
    category: str
    xid: int | None
    start: int
    end: int | None


@dataclass(frozen=True, slots=True)
class StorageLabel:
    """One true stall. node empty: not of a single node."""

    start: int
    end: int | None
    verdict: str
    node: str = ""


def runs(path: Path) -> list[Run]:
    """`session,job,nodes,start,end,state`; nodes is a host list. Raises ConfigError with file and line."""
    return _rows(path, ("session", "job", "nodes", "start", "end", "state"), _run)


def labels(path: Path) -> list[Label]:
    """`node,gpu,category,xid,start,end`. Raises ConfigError with file and line."""
    return _rows(path, ("node", "gpu", "category", "xid", "start", "end"), _label)


def storage_labels(path: Path) -> list[StorageLabel]:
    """`start,end,verdict,node`. Raises ConfigError with file and line."""
    return _rows(path, ("start", "end", "verdict", "node"), _storage_label)


def moment(text: str) -> int:
    """RFC 3339 or Unix seconds → Unix seconds. A time without a zone is refused: nobody knows which is meant."""
    try:
        told = float(text)
    except ValueError:
        told = None
    if told is not None:
        if not abs(told) < TOO_LARGE:  # nor infinite, nor no number
            raise ValueError(f"{text!r} are no Unix seconds{'; milliseconds?' if isfinite(told) else ''}")
        return round(told)
    return round(rfc3339(text, " or Unix seconds"))


# -- rows --------------------------------------------------------------------------------------------------------------


def _run(row: Mapping[str, str]) -> Run:
    try:
        nodes = parse_hostlist(row["nodes"])
    except BadReply as error:
        raise ValueError(error.message) from error
    if not (row["session"] or row["job"]):
        raise ValueError("neither session nor job is given")
    start, end = _span(row)
    return Run(row["session"] or row["job"], row["job"] or row["session"], nodes, start, end, _state(row["state"]))


def _state(text: str) -> str:
    """sacct writes `CANCELLED by 1000`, and `CANCELLED+` where its column is narrow."""
    return text.upper().partition(" ")[0].rstrip("+")


def _label(row: Mapping[str, str]) -> Label:
    if not row["node"]:
        raise ValueError("node is empty")
    xid = row["xid"]
    if xid and not xid.isdecimal():
        raise ValueError(f"xid {xid!r} is no code")
    return Label(row["node"], row["gpu"], row["category"], int(xid) if xid and int(xid) else None, *_span(row))


def _storage_label(row: Mapping[str, str]) -> StorageLabel:
    start, end = _span(row)
    return StorageLabel(start, end, row["verdict"], row["node"])


def _span(row: Mapping[str, str]) -> tuple[int, int | None]:
    start = moment(row["start"])
    end = moment(row["end"]) if row["end"] else None
    if end is not None and end < start:
        raise ValueError(f"ends at {row['end']} before it starts at {row['start']}")
    return start, end


def _rows(path: Path, columns: Sequence[str], make: Callable[[Mapping[str, str]], T]) -> list[T]:
    found = []
    for line, row in _read(path, columns):
        try:
            found.append(make(row))
        except ValueError as error:
            raise ConfigError(f"{path}:{line}: {error}") from error
    return found


def _read(path: Path, columns: Sequence[str]) -> Iterator[tuple[int, dict[str, str]]]:
    """(line, column → text without blanks around it). Further columns are ignored, and lines with nothing in them."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read: {error}") from error
    reader = csv.DictReader(text.splitlines(), restval="", skipinitialspace=True)
    try:
        reader.fieldnames = _header(path, reader.fieldnames or (), columns)
        for row in reader:
            found = {name: (row[name] or "").strip() for name in columns}
            if any(found.values()):
                yield reader.line_num, found
    except csv.Error as error:
        raise ConfigError(f"{path}:{reader.reader.line_num}: {error}") from error


def _header(path: Path, names: Sequence[str], columns: Sequence[str]) -> list[str]:
    header = [name.strip() for name in names]
    missing = [name for name in columns if name not in header]
    if missing:
        raise ConfigError(f"{path}:1: no column {', '.join(missing)}", f"the first line must be {','.join(columns)}")
    return header
