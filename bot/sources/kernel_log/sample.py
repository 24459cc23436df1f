"""What the lines of an input look like, whatever they are about: for those who set one up."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from threading import Thread

from bot.errors import Unreachable
from bot.sources.kernel_log.hearing import Hearing, records
from bot.sources.kernel_log.source import SOURCE, Input, KernelLog

ANY = (b" ", b'"')  # in every line of a log
ENOUGH = 20_000  # lines of an input that are looked at: some seconds where each is a journal entry


@dataclass
class Sample:
    """How many lines there were, could be understood, told their time, were vouched for by the journal as the kernel's.
    hosts: as the lines, or else the files, call them → whether that leads to a node of the scheduler. problems: place →
    what is wrong with it."""

    name: str
    lines: int = 0
    understood: int = 0
    timed: int = 0
    kernel: int = 0
    hosts: dict[str, bool] | None = None
    problems: dict[str, str] | None = None


def samples(log: KernelLog, since: int, now: int, nodes: Collection[str]) -> list[Sample]:
    """Of each input, from `since` on. Keeps nothing. Raises Unreachable where its storage hangs."""
    found: list[Sample] = []
    reading = Thread(
        target=lambda: found.extend(_sample(source, log.hearing, since, now, nodes) for source in log.inputs),
        name="kernel log sample",
        daemon=True,
    )
    reading.start()
    reading.join(log.deadline * 2)
    if reading.is_alive():
        raise Unreachable(SOURCE, f"was not read within {log.deadline * 2:g} s", "does its storage hang?")
    return found


def _sample(source: Input, hearing: Hearing, since: int, now: int, nodes: Collection[str]) -> Sample:
    seen = Sample(source.name)
    hosts: dict[str, bool] = {}
    for part in source.stream.read(since, now):
        for raw in records(part.data, ANY):
            if seen.lines >= ENOUGH:
                break
            told = source.decode(raw, now)
            if told and told.at is not None and told.at < since:
                continue
            seen.lines += 1
            if told is None:
                continue
            seen.understood += 1
            seen.timed += told.at is not None
            seen.kernel += told.kernel
            host, known = hearing.node(told.host or part.path, nodes)
            hosts[host] = known
    seen.hosts, seen.problems = hosts, dict(source.stream.problems)
    return seen
