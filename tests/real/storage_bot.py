"""The bot's first loop on a real Prometheus as a site file sets it up; only the scheduler is simulated."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path

import yaml

from bot.events import IncidentClosed, IncidentOpened, StallChanged
from bot.eyes import Eyes
from bot.model import Incident, Observation, Request
from bot.schedulers.simulated import SimulatedScheduler
from bot.site import read_site
from bot.state import State
from bot.tick import Told, Watcher, tick
from store.store import Store

# The shipped numbers for a scrape each 20 s, in a world that lives twenty times faster.
NUMBERS = {
    "step": "1s",
    "history": "2m",
    "gap": "12s",
    "settle": "3s",
    "least": "6s",
    "frozen_for": "3s",
    "judged_over": "10s",
    "verdict_for": "4s",
    "calm_for": "10s",
}


class StorageBot:
    """runs: job → how many nodes it has; they are numbered through in that order and began at `start`."""

    def __init__(
        self, root: Path, url: str, runs: Mapping[str, int], start: int, numbers: Mapping[str, object] | None = None
    ) -> None:
        root.mkdir(parents=True, exist_ok=True)
        self.scheduler = SimulatedScheduler(now=start)
        self.scheduler.add_nodes([f"node-{i:02d}" for i in range(1, sum(runs.values()) + 1)])
        for job, nodes in runs.items():
            self.scheduler.submit(job, nodes)
        file = root / "xidbot.yaml"
        file.write_text(yaml.safe_dump({
            "site": {"name": "lab", "database": str(root / "xidbot.db")},
            "prometheus": {"url": url},
            "scheduler": {"kind": "slurm"},
            "sessions": [{"match": {"qos": "pretrain"}}],
            "policy": {
                "time": {"step": "2s", "lag": "1s", "window": "1m", "past_step": "1m"},
                "storage": {**NUMBERS, **(numbers or {})},
            },
        }))  # fmt: skip
        self.site = read_site(file)
        self.store = Store.open(root / "xidbot.db")
        self.eyes = Eyes(self.site, self.scheduler, self.store)
        self._watcher = Watcher(self.store, self.eyes.observer, self.site.policy, _unasked)

    def turn(self) -> Observation:
        """One round, and the rest of the two seconds."""
        now = int(time.time())
        self.scheduler.turn(now)
        seen = tick(self._watcher, now)
        time.sleep(max(0.0, now + 2 - time.time()))
        return seen

    def incidents(self) -> list[Incident]:
        """Those of the storage. Nobody exports GPUs here, which is another one's affair."""
        return [i for i in self.store.state().all(Incident) if i.kind == "checkpoint_stall"]

    def story(self) -> list[tuple[int, str]]:
        """(Unix second, what was recorded) of the storage incidents, in order."""
        return [(event.at, text) for _, event in self.store.events() if (text := _words(event))]

    def close(self) -> None:
        self.eyes.close()
        self.store.close()


def _words(event: object) -> str:
    if isinstance(event, IncidentOpened) and event.incident.stall:
        return f"opened: {event.incident.stall.rule} {event.incident.stall.verdict}"
    if isinstance(event, StallChanged):
        return "over" if event.stall.ended else f"now: {event.stall.rule} {event.stall.verdict}"
    return "closed" if isinstance(event, IncidentClosed) else ""


def _unasked(request: Request, state: State, seen: Observation, now: int) -> Told:
    raise AssertionError(f"nobody asked, but: {request}")
