"""From records to events: which host, when, which GPU, and whose word it is."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field, replace
from datetime import tzinfo

from bot.model import Provenance
from bot.signals.xid_lines import XidLine, gpu_uuid, named_gpu, parse
from bot.sources.kernel_log.events import Event, Events
from bot.sources.kernel_log.follow import Part
from bot.sources.kernel_log.headers import quoted_time
from bot.sources.kernel_log.records import Decode, Told

TOGETHER = 5  # s between the lines of one message
_ADDRESS = re.compile(r"[\d.]+|.*:.*")  # an IP address: no pattern may cut a node's name out of it


@dataclass
class Hearing:
    """pattern: its one group cuts a node's name out of a host's."""

    zone: tzinfo
    pattern: str
    events: Events = field(default_factory=Events)
    _named: dict[str, tuple[str, int]] = field(default_factory=dict)  # host → (pci, when)
    _uuids: dict[tuple[str, str], str] = field(default_factory=dict)  # (host, pci) → UUID

    def hear(self, part: Part, decode: Decode, now: int, nodes: Collection[str]) -> None:
        for raw in records(part.data, decode.needles):
            told = decode(raw, now)
            line = parse(told.text) if told else None
            at = self._when(told, line, part.live, now) if told else None
            if told is None or at is None:
                continue
            host = self.node(told.host or part.path, nodes)[0]
            if line is None:
                self._note(host, at, told.text)
            else:
                by: Provenance = "kernel" if told.kernel and not line.lead else "claimed"
                self._add(host, at, line, by)

    def node(self, host: str, nodes: Collection[str]) -> tuple[str, bool]:
        """(name, it is a node of the scheduler). A host that leads to none keeps its name; where a line names none, the
        path of its file stands for it."""
        if host in nodes:
            return host, True
        if host.startswith("/"):
            part = _host_of(host, nodes)
            return part or host, part is not None
        found = None if _ADDRESS.fullmatch(host) else re.search(self.pattern, host)
        return (found[1], True) if found and found[1] in nodes else (host, False)

    def _when(self, told: Told, line: XidLine | None, live: bool, now: int) -> int | None:
        """By the host's clock, which may run ahead: nothing happens later than now. A record without a time is of now
        where it is new for certain. A program that quotes the kernel may do so long after."""
        at = told.at if told.at is not None else now if live else None
        if line and line.lead:
            at = quoted_time(line.lead, now, self.zone) or at
        return None if at is None else min(at, now)

    def _note(self, host: str, at: int, text: str) -> None:
        """Lines that report nothing by themselves, and say which GPU others are about."""
        if pci := named_gpu(text):
            self._named[host] = pci, at
        elif found := gpu_uuid(text):
            self._uuids[host, found[0]] = found[1]

    def _add(self, host: str, at: int, line: XidLine, by: Provenance) -> None:
        pci, when = self._named.get(host, (None, 0))
        if line.kind == "lost" and line.pci is None and abs(at - when) <= TOGETHER:
            line = replace(line, pci=pci)
        self.events.add(Event(host, at, at, line, by, self._uuids.get((host, line.pci or ""))))


def records(data: bytes, needles: Collection[bytes]) -> Iterator[bytes]:
    """The lines that have one of the needles in them, in order. Nearly all of a log has none, and is never split."""
    spans: set[tuple[int, int]] = set()
    for needle in needles:
        at = data.find(needle)
        while at >= 0:
            end = data.find(b"\n", at)
            end = end if end >= 0 else len(data)
            spans.add((data.rfind(b"\n", 0, at) + 1, end))
            at = data.find(needle, end)
    for start, end in sorted(spans):
        yield data[start:end]


def _host_of(path: str, nodes: Collection[str]) -> str | None:
    """A directory or a file that is called like a node: `…/node-17/kern.log`, `…/node-17.log`."""
    for part in reversed(path.split("/")):
        stem = part
        while stem:
            if stem in nodes:
                return stem
            stem = stem.rpartition(".")[0]
    return None
