"""Implements ports.MarkSource on the kernel logs of the cluster: journal entries and central syslog files."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import tzinfo
from threading import Thread
from typing import Any, Protocol

from bot.errors import Unreachable
from bot.model import Mark
from bot.sources.kernel_log.command import Command
from bot.sources.kernel_log.events import (
    TOLD_BY_ANYBODY,
    TOLD_BY_THE_KERNEL,
    Event,
    GpuXid,
    application,
    marks,
)
from bot.sources.kernel_log.follow import Files, Part
from bot.sources.kernel_log.hearing import Hearing
from bot.sources.kernel_log.records import Decode, Journal, Syslog

SOURCE = "kernel log"
PATTERN = r"^([^.:]+)"
DEADLINE = 8.0  # s for all inputs: half a tick
SETTLE = 3.0  # s beyond a command's own deadline
KEPT = 3600  # s that events stay in memory at least: the longest window that a site would set
SHOWN = 3  # problems told in one line


class Cursors(Protocol):
    """Where a reader was, under its name. Survives a restart."""

    def get(self, name: str) -> str | None: ...

    def put(self, name: str, value: str) -> None: ...


class Stream(Protocol):
    """Where records come from. problems: place → what is wrong with it. readable: something could be read."""

    problems: dict[str, str]
    readable: bool

    def read(self, since: int, now: int) -> Iterator[Part]: ...

    def dump(self) -> Mapping[str, Any]: ...

    def load(self, kept: Mapping[str, Any]) -> None: ...


@dataclass(frozen=True, slots=True)
class Input:
    """A stream and how its records are read. name: under which its places are kept."""

    name: str
    stream: Stream
    decode: Decode


@dataclass
class KernelLog:
    """Reads what is new and remembers what is not yet old. One caller at a time.

    problem: what could not be read the last time, empty when all could; what the other inputs told is there all the
    same. signals: what its inputs can tell. deadline: s that a caller waits.
    """

    inputs: Sequence[Input]
    cursors: Cursors
    hearing: Hearing
    signals: Collection[str] = (*TOLD_BY_THE_KERNEL, *TOLD_BY_ANYBODY)
    deadline: float = DEADLINE
    name: str = SOURCE
    problem: str = ""
    _seen: tuple[Event, ...] = ()
    _kept: str | None = None
    _reading: Thread | None = None
    _failed: list[Exception] = field(default_factory=list)

    def marks(self, since: int, now: int, nodes: Collection[str]) -> Sequence[Mark]:
        """Raises Unreachable when nothing could be read and nothing is remembered, and while a read hangs."""
        self._refresh(since, now, nodes)
        found = self._between(since, now, nodes)
        if not found and self.inputs and not any(source.stream.readable for source in self.inputs):
            raise Unreachable(self.name, self.problem, "see logs.kernel_log in the site file")
        return list(marks(found))

    def application(self, since: int, now: int, nodes: Collection[str]) -> Sequence[GpuXid]:
        """Of what `marks` read last: the Xids that are the application's, with their GPUs. Reads nothing."""
        return list(application(self._between(since, now, nodes)))

    def _between(self, since: int, now: int, nodes: Collection[str]) -> list[tuple[Event, str, bool]]:
        found = [(e, *self.hearing.node(e.host, nodes)) for e in self._seen if e.until >= since and e.at <= now]
        return [(event, node, known) for event, node, known in found if known or not node.startswith("/")]

    # -- reading, in a thread of its own -------------------------------------------------------------------------------

    def _refresh(self, since: int, now: int, nodes: Collection[str]) -> None:
        """A disk that hangs must not stop the tick: the read is left to itself, and awaited again the next time."""
        if self._reading is None:
            if self._kept is None:
                self._load()
            self._reading = Thread(target=self._read, args=(since, now, nodes), name=self.name, daemon=True)
            self._reading.start()
        self._reading.join(self.deadline)
        if self._reading.is_alive():
            raise Unreachable(self.name, f"was not read within {self.deadline:g} s", "does its storage hang?")
        self._reading = None
        if self._failed:
            raise self._failed.pop()
        self._seen = self.hearing.events.all()
        self.problem = self._problem(nodes)
        self._save()

    def _read(self, since: int, now: int, nodes: Collection[str]) -> None:
        try:
            self.hearing.events.forget(min(since, now - KEPT))
            for source in self.inputs:
                for part in source.stream.read(since, now):
                    self.hearing.hear(part, source.decode, now, nodes)
        except Exception as error:  # noqa: BLE001 - raised again where the tick waits
            self._failed.append(error)

    def _problem(self, nodes: Collection[str]) -> str:
        nameless = {e.host for e in self._seen if e.host.startswith("/") and not self.hearing.node(e.host, nodes)[1]}
        told = [f"{where}: {what}" for source in self.inputs for where, what in source.stream.problems.items()]
        told += [
            f"{path}: its lines name no host; let syslog write one, or name the file or its directory after the node"
            for path in sorted(nameless if nodes else ())
        ]
        more = f"; and {len(told) - SHOWN} more" if len(told) > SHOWN else ""
        return "; ".join(told[:SHOWN]) + more

    # -- kept over a restart -------------------------------------------------------------------------------------------

    def _load(self) -> None:
        """What cannot be understood is as if it were the first start."""
        self._kept = self.cursors.get(SOURCE) or ""
        with suppress(ValueError, KeyError, TypeError, AttributeError):
            kept = json.loads(self._kept)
            for source in self.inputs:
                if source.name in kept["inputs"]:
                    source.stream.load(kept["inputs"][source.name])
            self.hearing.events.load(kept["events"])

    def _save(self) -> None:
        places = {source.name: source.stream.dump() for source in self.inputs}
        text = json.dumps({"inputs": places, "events": self.hearing.events.dump()}, ensure_ascii=False)
        if text != self._kept:
            self.cursors.put(SOURCE, text)
            self._kept = text


def kernel_log(
    cursors: Cursors,
    zone: tzinfo,
    *,
    journal: Sequence[str] = (),
    syslog: Sequence[str] = (),
    command: Sequence[str] = (),
    timeout: float = 5.0,
    pattern: str = PATTERN,
) -> KernelLog:
    """journal: globs of files with a journal entry in JSON a line. syslog: globs of plain log files. command: prints
    such entries; timeout: its deadline in s. zone: of syslog times that tell none. pattern: its one group cuts a node's
    name out of a host's."""
    entries, lines = Journal(zone), Syslog(zone)

    def files(patterns: Sequence[str], decode: Decode) -> Files:
        def time_of(raw: bytes, now: int) -> int | None:
            told = decode(raw, now)
            return told.at if told else None

        return Files(patterns, time_of)

    inputs = [
        *([Input("journal", files(journal, entries), entries)] if journal else []),
        *([Input("command", Command(command, timeout), entries)] if command else []),
        *([Input("syslog", files(syslog, lines), lines)] if syslog else []),
    ]
    signals = {*(TOLD_BY_THE_KERNEL if journal or command else ()), *TOLD_BY_ANYBODY}
    deadline = max(DEADLINE, timeout + SETTLE) if command else DEADLINE
    return KernelLog(inputs, cursors, Hearing(zone, pattern), tuple(sorted(signals)), deadline)
