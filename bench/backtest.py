"""`backtest`: two days of 63 nodes on a real VictoriaMetrics: the command against the bare fetch of the same ranges."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

from bot.replay import WORKERS
from bot.sandbox.recording import Recording
from bot.sandbox.recording.folder import write
from tests.real.faultproxy import FaultProxy
from tests.real.victoria import VictoriaMetrics

DAYS, NODES, SEED, TURNS = 2, 63, 1, 1
BIN = Path(sys.executable).parent


def backtest(say: Callable[[str], None]) -> dict[str, float]:
    """peak_mib: the most memory that the command took."""
    with TemporaryDirectory(prefix="xidbot-bench-") as name, history(Path(name), say) as url:
        command = Command(Path(name), url)
        asked = command.questions()
        say(f"  {len(asked)} questions")
        sides: tuple[Callable[[], object], ...] = (command.run, lambda: fetch(url, asked))
        walls: tuple[list[float], list[float]] = ([], [])
        for turn in range(TURNS):
            for side, timed in enumerate(sides):
                began = time.perf_counter()
                timed()
                walls[side].append(time.perf_counter() - began)
            say(f"  {turn + 1}/{TURNS}")
    ours, theirs = median(walls[0]), median(walls[1])
    return {
        "ratio": round(ours / theirs, 3),
        "ours_s": round(ours, 2),
        "theirs_s": round(theirs, 2),
        "peak_mib": round(command.peak / 2**20),
        "days": DAYS,
    }


@contextmanager
def history(folder: Path, say: Callable[[str], None]) -> Iterator[str]:
    say("  writing and loading it")
    write(Recording(SEED, DAYS, NODES), folder / "out", "victoriametrics")
    server = VictoriaMetrics(folder / "server")
    try:
        server.load(sorted((folder / "out").glob("*.jsonl")))
        yield server.url
    finally:
        server.stop()


class Command:
    """`xidbot backtest` as people run it."""

    def __init__(self, folder: Path, url: str) -> None:
        self.folder, self.url, self.peak = folder, url, 0
        self.recording = Recording(SEED, DAYS, NODES)

    def run(self, url: str = "") -> None:
        out, span = self.folder / "out", (f"--from={self.recording.start}", f"--to={self.recording.end}")
        files = (f"--sessions={out / 'sessions.csv'}", f"--labels={out / 'labels.csv'}")
        argv = [str(BIN / "xidbot"), "backtest", f"--prometheus={url or self.url}", *span, *files, "--json", "--again"]
        env = {**os.environ, "XDG_CACHE_HOME": str(self.folder / "cache")}
        child = subprocess.Popen(argv, env=env, cwd=self.folder, stdout=subprocess.DEVNULL)
        _, status, used = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        assert child.returncode == 0, child.returncode
        self.peak = max(self.peak, used.ru_maxrss * 1024)

    def questions(self) -> Sequence[tuple[str, str]]:
        """(path, body) of everything that it posts."""
        with FaultProxy(self.url) as proxy:
            self.run(proxy.url)
            return [(request.path, request.body) for request in proxy.requests if request.method == "POST"]


def fetch(url: str, asked: Sequence[tuple[str, str]]) -> None:
    import requests

    with requests.Session() as session, ThreadPoolExecutor(WORKERS) as pool:
        session.trust_env = False
        kind = {"Content-Type": "application/x-www-form-urlencoded"}

        def one(question: tuple[str, str]) -> Any:
            answer = json.loads(session.post(url + question[0], data=question[1], headers=kind).content)
            return answer["status"]

        assert set(pool.map(one, asked)) == {"success"}
