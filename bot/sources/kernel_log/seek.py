"""Where in a long log the window begins."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import median_low

PROBE = 1 << 16  # bytes
SAMPLE = 25  # lines of a probe whose times are read
FAR = 16  # probes in a row that may be rubbish (a machine that lost power leaves blocks of zeros)
# s. Lines come late and hosts' clocks differ; the median of a probe stands for most of them, this for the rest.
SLACK = 600

Read = Callable[[int, int], bytes]  # (offset, size) → bytes
TimeOf = Callable[[bytes], int | None]


def window_start(read: Read, size: int, since: int, time_of: TimeOf) -> int | None:
    """The beginning of a line before which nothing is as new as `since`; None where the end of the log tells no times.

    The log is nearly in order of time, and is searched by halves: a long one costs a few dozen probes.
    """
    if size <= PROBE:
        return 0 if _moment(read(0, size), 0, time_of) is not None else None
    if _moment(read(size - PROBE, PROBE), 1, time_of) is None:
        return None
    old, new = 0, size
    while new - old > PROBE:
        middle = (old + new) // 2
        moment = _around(read, middle, new, time_of)
        if moment is not None and moment < since - SLACK:
            old = middle
        else:
            new = middle
    return _line_after(read, old) if old else 0


def _around(read: Read, at: int, end: int, time_of: TimeOf) -> int | None:
    for begin in range(at, min(end, at + FAR * PROBE), PROBE):
        moment = _moment(read(begin, PROBE), begin, time_of)
        if moment is not None:
            return moment
    return None


def typical_time(data: bytes, time_of: TimeOf) -> int | None:
    """The median time of the lines; None where none tells."""
    return _moment(data, 0, time_of)


def _moment(data: bytes, begin: int, time_of: TimeOf) -> int | None:
    """A line that began before the probe is left out."""
    lines = data.split(b"\n")[1 if begin else 0 :]
    times = [at for line in _sampled(lines) if (at := time_of(line)) is not None]
    return median_low(times) if times else None


def _sampled(lines: Sequence[bytes]) -> Sequence[bytes]:
    return lines[:: max(1, len(lines) // SAMPLE)]


def _line_after(read: Read, at: int) -> int:
    return at + read(at, PROBE).find(b"\n") + 1
