"""What was measured, what logs tell and who ran where, as one window to be scored. Pure; the same live and replayed."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bot.app_xids import SIGNAL as APP_XID
from bot.model import Cluster, Mark
from bot.policy import Policy, Signal
from bot.ports import Matrix
from bot.repeats import SIGNAL as REPEATED
from bot.signals.peers import Groups, Past, Stay
from bot.signals.score import Window, look_back


@dataclass(frozen=True, slots=True)
class Heard:
    """What logs and other tools tell. signals: those that they would tell if there were any. by_gpu: the source of
    metrics tells GPUs apart (ports.XidSource)."""

    marks: Sequence[Mark] = ()
    signals: Collection[str] = ()
    by_gpu: bool = False


def times_back(policy: Policy, start: int, end: int) -> NDArray[np.int64]:
    """start … end, with what the first of them looks back to before it."""
    return np.arange(start - look_back(policy), end + 1, policy.numbers.time.step, dtype=np.int64)


def past_times(policy: Policy, start: int, end: int) -> NDArray[np.int64]:
    """The coarse moments that rows from start to end are compared with."""
    time = policy.numbers.time
    first, last = start - look_back(policy) - time.past_from, end - time.past_to
    return np.arange(first // time.past_step * time.past_step, last + 1, time.past_step, dtype=np.int64)


def with_past(policy: Policy) -> list[Signal]:
    return [s for s in policy.signals.values() if s.evidence.kind == "peers" and s.evidence.own_past and s.query]


def window(
    policy: Policy,
    matrices: Mapping[str, Matrix],
    times: NDArray[np.int64],
    expected: Mapping[str, float],
    stays: Iterable[Stay] = (),
    heard: Heard | None = None,
    past: Mapping[str, Matrix] | None = None,
) -> Window:
    """All signals over all hosts: those that were seen or told of, and nodes that should have GPUs though nothing was.
    expected: node → GPUs that it should have, NaN where nobody knows. past: of the signals `with_past`; None = the
    present is compared with the peers alone."""
    heard, stays = heard or Heard(), tuple(stays)
    known = {host: ours for m in matrices.values() for host, ours in zip(m.hosts, m.known, strict=True)}
    known |= {mark.node: mark.known for mark in heard.marks if mark.node not in known}
    known |= {node: True for node, gpus in expected.items() if gpus > 0}
    columns = {host: column for column, host in enumerate(known)}
    values = np.full((len(policy.signals), len(times), len(columns)), np.nan)
    for row, signal in enumerate(policy.signals.values()):
        if signal.id in matrices:
            values[row][:, [columns[host] for host in matrices[signal.id].hosts]] = matrices[signal.id].values
        elif not signal.query and signal.id in heard.signals:
            values[row] = 0
    _without_logs(values, list(policy.signals), matrices, heard)
    _lay_over(values, list(policy.signals), times, columns, [m for m in heard.marks if _may_say(m, policy.signals)])
    return Window(
        signals=tuple(policy.signals.values()),
        nodes=tuple(columns),
        times=times,
        values=values,
        expected=np.array([expected.get(host, np.nan) for host in columns], dtype=np.float64),
        known=np.array(list(known.values()), dtype=bool),
        groups=Groups.of(stays, times, tuple(columns)),
        past=None if past is None else _past(policy, past, times, stays, columns),
    )


def _without_logs(values: NDArray[np.float64], ids: list[str], matrices: Mapping[str, Matrix], heard: Heard) -> None:
    """Where no log tells of the application's Xids, nodes whose exporter would are good until one is counted."""
    if heard.by_gpu and REPEATED in ids and REPEATED not in heard.signals and APP_XID in matrices:
        shown = values[ids.index(APP_XID)]
        values[ids.index(REPEATED)] = np.where(np.isnan(shown), np.nan, 0.0)


def _past(
    policy: Policy,
    matrices: Mapping[str, Matrix],
    rows: NDArray[np.int64],
    stays: Iterable[Stay],
    columns: Mapping[str, int],
) -> Past:
    """What could not be read is unknown."""
    signals = with_past(policy)
    times = past_times(policy, int(rows[0]) + look_back(policy), int(rows[-1]))
    values = np.full((len(signals), len(times), len(columns)), np.nan)
    for row, signal in enumerate(signals):
        if signal.id in matrices:
            hosts = matrices[signal.id].hosts
            seen = [place for place, host in enumerate(hosts) if host in columns]
            values[row][:, [columns[hosts[place]] for place in seen]] = matrices[signal.id].values[:, seen]
    return Past(times, values, Groups.of(stays, times, tuple(columns)))


def _may_say(mark: Mark, signals: Mapping[str, Signal]) -> bool:
    """A claim never speaks for the kernel, but where it weighs nothing."""
    signal = signals.get(mark.signal)
    if signal is None:
        return False
    return mark.provenance == "kernel" or signal.provenance == "claimed" or signal.evidence.strength == 0


def _lay_over(
    values: NDArray[np.float64],
    signals: Sequence[str],
    times: NDArray[np.int64],
    columns: Mapping[str, int],
    marks: Iterable[Mark],
) -> None:
    """A mark stands from the first look at or after it: a log outranks a gauge, which keeps only the last Xid."""
    rows = {signal: row for row, signal in enumerate(signals)}
    for mark in sorted(marks, key=lambda mark: mark.at):
        if mark.signal in rows and times[0] <= (mark.until or mark.at) and mark.at <= times[-1]:
            first = int(np.searchsorted(times, mark.at))
            last = first if mark.until is None else int(np.searchsorted(times, mark.until, side="right")) - 1
            values[rows[mark.signal], first : max(first, last) + 1, columns[mark.node]] = mark.value


def told_texts(marks: Iterable[Mark], signals: Mapping[str, Signal], at: int) -> Mapping[tuple[str, str], str]:
    """(signal, node) → the words of the newest mark that counts at this moment."""
    return {
        (mark.signal, mark.node): mark.text
        for mark in sorted(marks, key=lambda mark: mark.at)
        if mark.text and mark.signal in signals and mark.at <= at <= _until(mark, signals[mark.signal])
    }


def _until(mark: Mark, signal: Signal) -> int:
    return (mark.until or mark.at) + signal.evidence.lasts + 60  # a minute: a look may come a step late


def stays_of(cluster: Cluster) -> Iterator[Stay]:
    """Every attempt that ran, also of jobs that are none of our sessions: their nodes are peers too."""
    for job in cluster.jobs.values():
        for attempt in job.attempts:
            if attempt.started and attempt.start is not None and (attempt.alive or attempt.end is not None):
                yield Stay(attempt.id, attempt.nodes, attempt.start, attempt.end)


def health_marks(cluster: Cluster) -> Iterator[Mark]:
    """Nodes that a health checker has taken out: it looks at the machine itself."""
    for node in cluster.nodes.values():
        for holder in node.holders:
            if holder.kind == "health":
                since = holder.since or cluster.at
                text = f"{holder.by} took the node out: {holder.why}"
                yield Mark(since, node.name, "health_check", until=cluster.at, text=text, provenance="claimed")
