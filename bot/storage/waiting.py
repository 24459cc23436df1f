"""Requests that wait while none completes: the only live sign of a hang, because a request's counters move when it is
done (seen on a real mount: requests, response times and timeouts all stood still). Row by row, vectorised over nodes.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from bot.storage.flows import Flows
from bot.storage.window import Flags, Floats

BLANK = {
    "_often": 0.0,
    "_low": np.inf,
    "_lower": np.inf,
    "_since": np.nan,
    "_count": 0.0,
    "_sent": np.nan,
    "_done_at": np.nan,
}
FORGETS, OFTEN = 0.9, 0.8  # of some ten samples this share completed something: silence is unusual
BUCKET = 1800  # s; two of them hold the lowest number of open requests that is believed to be an offset


@dataclass
class Waiting:
    """sends − receives is never quite the number of open requests: a reply lost at a reconnect stays missing for good
    (seen: 36 on an RDMA mount). The lowest difference of the last half hour to hour is taken as that offset; while
    nothing completes it is not learned.
    """

    _low: Floats = field(default_factory=lambda: np.empty((0, 0)))
    _lower: Floats = field(default_factory=lambda: np.empty((0, 0)))
    _since: Floats = field(default_factory=lambda: np.empty((0, 0)))
    _count: Floats = field(default_factory=lambda: np.empty((0, 0)))
    _sent: Floats = field(default_factory=lambda: np.empty((0, 0)))
    _done_at: Floats = field(default_factory=lambda: np.empty((0, 0)))
    _often: Floats = field(default_factory=lambda: np.empty((0, 0)))
    _bucket: int = -1

    def see(self, flows: Flows) -> Wait | None:
        """None where nobody measures it."""
        if flows.open is None or flows.sent is None or "done" not in flows.sums:
            return None
        self._widen(*flows.open.shape[1:])
        shape = flows.open.shape
        wait = Wait(np.zeros(shape), np.zeros(shape, dtype=np.int64), np.zeros(shape), np.zeros(shape, dtype=bool))
        for row, at in enumerate(flows.times.tolist()):
            self._turn(at)
            self._row(flows, row, at, wait)
        return wait

    def _widen(self, nodes: int, exports: int) -> None:
        for name, blank in BLANK.items():
            old = getattr(self, name)
            if old.shape != (nodes, exports):
                made = np.full((nodes, exports), blank)
                made[: old.shape[0], : old.shape[1]] = old
                setattr(self, name, made)

    def _turn(self, at: int) -> None:
        """On to the next bucket; requests that hang keep the offset that they had."""
        if self._bucket < 0:
            self._bucket = at // BUCKET
        if at // BUCKET != self._bucket:
            stuck = self._count > 0
            self._lower = np.where(stuck, np.minimum(self._low, self._lower), self._low)
            self._low = np.where(stuck, self._low, np.inf)
            self._bucket = at // BUCKET

    def _row(self, flows: Flows, row: int, at: int, wait: Wait) -> None:
        assert flows.open is not None and flows.sent is not None
        fresh = flows.fresh[row][:, None] & ~np.isnan(flows.open[row])
        # Mounts of one server may share a connection: an answer on it, whoever asked, says that it is alive.
        opened, sent, done = flows.open[row], flows.sent[row], flows.sums["done"][row] + flows.sums["receives"][row]
        with np.errstate(invalid="ignore"):
            offset = np.minimum(self._low, self._lower)
            learns = fresh & ((done > 0) | (opened <= offset) | np.isinf(offset))
            self._low = np.where(learns, np.minimum(self._low, opened), self._low)
            offset = np.minimum(self._low, self._lower)
            pending = np.where(np.isnan(opened) | np.isinf(offset), 0.0, opened - offset)
            still = fresh & (pending >= 1) & ~(done > 0)
            ended = fresh & ~still
            began = still & (self._count == 0)
            self._since = np.where(began, np.where(np.isnan(self._done_at), at, self._done_at), self._since)
            self._sent = np.where(began, sent, self._sent)
            self._count = np.where(ended, 0, np.where(still, self._count + 1, self._count))
            self._done_at = np.where(ended, at, self._done_at)
            self._often = np.where(ended, FORGETS * self._often + (1 - FORGETS) * (done > 0), self._often)
            wait.pending[row] = pending
            wait.samples[row] = self._count
            wait.seconds[row] = np.where(self._count > 0, at - self._since, 0.0)
            wait.wanted[row] = (self._count > 0) & ((sent > self._sent) | (self._often >= OFTEN))


@dataclass(frozen=True, slots=True)
class Wait:
    """(T, N, E) each: open requests beyond the offset; samples in a row without a completion; seconds since the sample
    before them; whether somebody wants something: more was sent since, or nearly every sample before completed some."""

    pending: Floats
    samples: np.ndarray[tuple[int, ...], np.dtype[np.int64]]
    seconds: Floats
    wanted: Flags
