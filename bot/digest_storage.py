"""What storage did in one calendar week. A save belongs to the week in which it ended, a stall to that of its onset."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from bot.digest_records import Records
from bot.model import KnownSave, Session
from bot.saves import durations, quantile
from bot.stalls import idle_hours
from bot.weeks import Week


@dataclass(frozen=True, slots=True)
class RunSaves:
    """A run that was under way in the week. saves: how many; median, p90: s, None where no duration is known."""

    name: str
    saves: int = 0
    median: float | None = None
    p90: float | None = None


@dataclass(frozen=True, slots=True)
class StorageWeek:
    """median, p90: s, over the saves of all runs. stalls: verdict → how many. links: their use (0..1) in each
    stall in which it was measured. gpu_hours: idle in stalls, at most."""

    runs: tuple[RunSaves, ...] = ()
    saves: int = 0
    median: float | None = None
    p90: float | None = None
    stalls: Mapping[str, int] = field(default_factory=dict)
    links: tuple[float, ...] = ()
    gpu_hours: float = 0.0

    def as_json(self) -> dict[str, Any]:
        """null = not measured."""
        return {
            "saves": self.saves if self.saves else None,
            "median_s": _rounded(self.median),
            "p90_s": _rounded(self.p90),
            "runs": {r.name: _run_json(r) if r.saves else None for r in self.runs},
            "stalls": dict(self.stalls),
            "link_use": {"least": min(self.links), "most": max(self.links)} if self.links else None,
            "gpu_hours_idle": round(self.gpu_hours, 4),
        }


def _run_json(run: RunSaves) -> dict[str, Any]:
    return {"saves": run.saves, "median_s": _rounded(run.median), "p90_s": _rounded(run.p90)}


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 1)


def storage_week(records: Records, week: Week) -> StorageWeek:
    stalls = [i.stall for i in records.incidents if i.stall and week.start <= i.stall.onset < week.end]
    sizes = {key: run.gpus for key, run in records.runs.items()}
    took = durations(save for _, save in records.saves)
    return StorageWeek(
        runs=tuple(sorted(_runs(records, week), key=lambda r: r.name)),
        saves=len(records.saves),
        median=quantile(took, 0.5),
        p90=quantile(took, 0.9),
        stalls=dict(Counter(s.verdict for s in stalls).most_common()),
        links=tuple(s.measures.link_use for s in stalls if s.measures.link_use is not None),
        gpu_hours=sum(idle_hours(s, sizes) for s in stalls),
    )


def _runs(records: Records, week: Week) -> Iterator[RunSaves]:
    """Also those of which no save is known: nobody measured them, which is not: they made none."""
    by_run: dict[str, list[KnownSave]] = {}
    for key, save in records.saves:
        by_run.setdefault(key, []).append(save)
    for key, run in records.runs.items():
        mine = by_run.get(key, [])
        if mine or _ran(run, week):
            took = durations(mine)
            yield RunSaves(run.name, len(mine), quantile(took, 0.5), quantile(took, 0.9))


def _ran(run: Session, week: Week) -> bool:
    return any(
        a.start is not None and a.started and a.start < week.end and (a.end is None or a.end > week.start)
        for a in run.attempts
    )
