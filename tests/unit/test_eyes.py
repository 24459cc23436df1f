"""What a site file's sources tell, put together: the scheduler is simulated, the rest is the site's own."""

from pathlib import Path

import yaml

from bot.eyes import Eyes
from bot.model import LogGrowth, Observation, Request
from bot.schedulers.simulated import SimulatedScheduler
from bot.site import read_site
from bot.state import State
from bot.tick import Told, Watcher, tick
from store.store import Store

NOW = 1_800_000_000


def test_a_look_tells_how_the_jobs_logs_grow(tmp_path: Path) -> None:
    file, log = tmp_path / "xidbot.yaml", tmp_path / "7.out"
    file.write_text(yaml.safe_dump({
        "site": {"name": "lab", "database": str(tmp_path / "xidbot.db")},
        "prometheus": {"url": "http://127.0.0.1:9"},
        "scheduler": {"kind": "slurm"},
        "sessions": [{"match": {"qos": "pretrain"}, "log": str(tmp_path / "$job.out")}],
    }))  # fmt: skip
    scheduler = SimulatedScheduler(now=NOW)
    scheduler.add_nodes(["node-01"])
    scheduler.submit("7", 1)
    scheduler.turn(NOW)
    log.write_text("step 10 loss 2.5\n")
    store = Store.open(tmp_path / "xidbot.db")
    eyes = Eyes(read_site(file), scheduler, store)
    try:
        tick(Watcher(store, eyes.observer, eyes.observer.policy, unasked), NOW)  # the session is known by then
        seen = eyes.observer.observe(NOW + 15)
        attempt = seen.cluster.jobs["7"].latest.id  # type: ignore[union-attr]
        assert seen.logs == (LogGrowth(attempt, NOW + 15, seen.logs[0].moved, 0, 0, 10),)
        assert store.state().live_sessions()[0].latest.id == attempt  # type: ignore[union-attr]
    finally:
        eyes.close()
        store.close()


def unasked(request: Request, state: State, seen: Observation, now: int) -> Told:
    raise AssertionError(f"nobody asked, but: {request}")
