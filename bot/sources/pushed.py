"""Checkpoints that trainers push to the listener."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

from bot.markers import Marker
from bot.model import Checkpoint


class PushedCheckpoints:
    """Implements ports.CheckpointSource. markers: those that were pushed under any of these names."""

    def __init__(self, markers: Callable[[Collection[str]], Sequence[Marker]]) -> None:
        self._markers = markers

    def checkpoints(self, at: int, jobs: Mapping[str, Sequence[str]]) -> Sequence[Checkpoint]:
        found = []
        for job, names in jobs.items():
            done = [marker for marker in self._markers(set(names)) if marker.completed and marker.completed <= at + 60]
            if done:
                newest = max(done, key=lambda marker: marker.completed or 0)
                found.append(Checkpoint(job, newest.step, newest.started, newest.completed))
        return found
