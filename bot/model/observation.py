"""Everything seen at one moment, and how its sources are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from bot.model.evidence import AppXid, JobNote, NodeScore, Reading
from bot.model.progress import LogGrowth, Progress
from bot.model.saves import Checkpoint, JobSave
from bot.model.scheduler import Cluster
from bot.model.storage import StorageView


@dataclass(frozen=True, slots=True)
class SourceState:
    """Whether a source could be read this time. `problem` is empty when it could."""

    name: str
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Observation:
    """All that one look sees. `at`: the moment the data is of; `now`: when we looked.

    cluster None: the scheduler could not be read. scores None: the metrics could not.
    """

    at: int
    now: int
    cluster: Cluster | None = None
    scores: Mapping[str, NodeScore] | None = None
    readings: tuple[Reading, ...] = ()
    checkpoints: tuple[Checkpoint, ...] = ()
    sources: tuple[SourceState, ...] = ()
    storage: tuple[StorageView, ...] = ()
    notes: tuple[JobNote, ...] = ()
    progress: tuple[Progress, ...] = ()
    logs: tuple[LogGrowth, ...] = ()
    app_xids: tuple[AppXid, ...] = ()
    saves: tuple[JobSave, ...] = ()  # all that the sources tell of saves, also what they told before


@dataclass(frozen=True, slots=True)
class SourceHealth:
    """Whether a source (or one node's telemetry, `node:<name>`) can be read, and since when it is so."""

    name: str
    problem: str
    since: int
