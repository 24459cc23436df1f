"""Checkpoints that trainers push to the listener."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

from bot.markers import Marker
from bot.model import Checkpoint, JobSave, KnownSave

MOST = 50  # newest markers of a job: more than can come between two looks


class PushedCheckpoints:
    """Implements ports.CheckpointSource. markers: those that were pushed under any of these names."""

    def __init__(self, markers: Callable[[Collection[str]], Sequence[Marker]]) -> None:
        self._markers = markers
        self._told: list[JobSave] = []

    def told(self) -> Sequence[JobSave]:
        """Also those that only began."""
        return self._told

    def checkpoints(self, at: int, jobs: Mapping[str, Sequence[str]]) -> Sequence[Checkpoint]:
        found = []
        self._told = []
        for job, names in jobs.items():
            pushed = self._markers(set(names))
            self._told += [JobSave(job, _save(marker)) for marker in pushed[-MOST:]]
            done = [marker for marker in pushed if marker.completed and marker.completed <= at + 60]
            if done:
                newest = max(done, key=lambda marker: marker.completed or 0)
                found.append(Checkpoint(job, newest.step, newest.started, newest.completed))
        return found


def _save(m: Marker) -> KnownSave:
    whole = m.completed is not None
    return KnownSave(m.started, m.completed, m.step, m.bytes, whole, sources=("pushed",), seen=m.at)
