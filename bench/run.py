"""`make bench`: figures as ratios, both sides measured here and in turns. JSON on stdout, progress on stderr.

Nothing is waited for: Prometheus gets half an hour of 63 nodes written into its store and answers from there.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory, mkdtemp
from typing import Any

from bench import backtest, fleet
from bench.detection import SHORT_DAYS, SHORT_SEEDS, detection
from bench.history import GPUS, JOB, NODES, prometheus_with_history
from bench.storage import storage

BIN = Path(sys.executable).parent
PAIRS, FLEET_PAIRS = 11, 3
DAYS, SEED, DAY = 7, 7, 86_400
Timed = Callable[[], Any]


def main() -> None:
    figures = {"import": imports(), "tick": ticks(), "demo": demo(), "storage": stalls()}
    figures |= {"backtest": replays(), "detection": detected()}
    print(json.dumps(figures))


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def in_turns(ours: Timed, theirs: Timed, pairs: int = PAIRS) -> tuple[float, float]:
    """Medians of the seconds that both take, after one round that does not count."""
    walls: tuple[list[float], list[float]] = ([], [])
    for turn in range(pairs + 1):
        for side in (0, 1) if turn % 2 else (1, 0):
            began = time.perf_counter()
            (ours, theirs)[side]()
            if turn:
                walls[side].append(time.perf_counter() - began)
        say(f"  {turn}/{pairs}")
    return median(walls[0]), median(walls[1])


def told(ours: float, theirs: float, name: str = "ratio") -> dict[str, float]:
    return {name: round(ours / theirs, 3), "ours_ms": round(ours * 1000, 1), "theirs_ms": round(theirs * 1000, 1)}


# -- import ---------------------------------------------------------------------------------------


def imports() -> dict[str, float]:
    say("xidbot --help against python -c 'import click'")
    return told(
        *in_turns(
            lambda: _quietly(BIN / "xidbot", "--help"),
            lambda: _quietly(sys.executable, "-c", "import click"),
        ),
        name="help_ratio",
    )


def _quietly(*argv: str | Path) -> None:
    subprocess.run(argv, stdout=subprocess.DEVNULL, check=True)


# -- tick -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Post:
    """A question as it went to Prometheus."""

    url: str
    form: Mapping[str, Any]


def ticks() -> dict[str, Any]:
    """A whole round of the first loop on a fresh database, with a GPU fault to find, against its questions alone; then
    the same with twenty times as many nodes."""
    say(f"a tick over {len(NODES)} nodes of {GPUS} GPUs on a real Prometheus")
    with TemporaryDirectory(prefix="xidbot-bench-") as folder, prometheus_with_history(Path(folder), say) as (url, at):
        small, asked = tick_ratio(Tick(url, at, Path(folder), snapshot(at, NODES)), NODES, PAIRS)
        say(f"a tick over {fleet.COUNT} nodes, answered by a server that knows all answers")
        answers = {fleet.form(post.url, post.form): fleet.multiplied(answer) for post, answer in asked}
        many = fleet.fleet()
        with fleet.serving(answers) as url:
            big, _ = tick_ratio(Tick(url, at, Path(folder), snapshot(at, many)), many, FLEET_PAIRS)
        return {**small, f"ratio_{len(many)}": big[f"ratio_{len(many)}"], f"of_{len(many)}": big}


def tick_ratio(bench: Tick, nodes: Sequence[str], pairs: int) -> tuple[dict[str, float], list[tuple[Post, bytes]]]:
    """(the ratio, questions with their answers)."""
    bench.round()
    asked = bench.recorded()
    say(f"  {len(asked)} questions, {bench.incidents} incident found")
    assert bench.incidents == 1
    answers = [(post, bench.plain.post(post.url, data=post.form).content) for post in asked]
    ratio = told(*in_turns(bench.round, lambda: replay(bench.plain, asked), pairs), name=f"ratio_{len(nodes)}")
    bench.close()
    return ratio, answers


class Tick:
    """The bot's first loop on a scheduler snapshot that never changes."""

    def __init__(self, url: str, at: int, folder: Path, scheduler: Any) -> None:
        import requests

        import playbooks
        from bot import policy as policies
        from bot.http_session import DeadlineSession
        from bot.plans import STEPS
        from bot.policy import Match, SessionRule
        from bot.sources.prometheus import PrometheusSource

        rule = SessionRule(match=Match(qos="pretrain"))
        self.policy = policies.build(playbooks=playbooks.load(None, STEPS), sessions=[rule], write_mode="approve")
        self.now = at + self.policy.numbers.time.lag
        self.folder, self.rounds, self.incidents = Path(mkdtemp(dir=folder)), 0, 0
        self.session = DeadlineSession(30)
        self.plain = requests.Session()
        self.plain.trust_env = False
        labels = "node", "Hostname", "instance"
        # A new one each round: it remembers the answers of the moment asked for last, which is always the same here.
        self.metrics: Callable[[], PrometheusSource] = lambda: PrometheusSource(
            url, self.session, labels, r"^([^.:]+)", ("dcgm",)
        )
        self.scheduler = scheduler
        self.rule = rule

    def round(self) -> None:
        from bot.observe import LiveObserver
        from bot.sources.prometheus import PrometheusCheckpoints
        from bot.tick import Told, Watcher, tick
        from store.store import Store

        self.rounds += 1
        store = Store.open(self.folder / f"{self.rounds}.db")
        metrics = self.metrics()
        saves = PrometheusCheckpoints(metrics, self.rule.checkpoint.prometheus)
        names = {JOB: (JOB, "llm", f"session-{JOB}")}
        eyes = LiveObserver(metrics, self.scheduler, saves, self.policy, lambda: names, metrics.details)
        tick(Watcher(store, eyes, self.policy, lambda *_: Told("", (), True)), self.now)
        self.incidents = len(store.state().open_incidents())
        store.close()

    def recorded(self) -> list[Post]:
        """The questions of one round."""
        asked: list[Post] = []
        plain = self.session.request

        def note(method: Any, url: Any, *args: Any, **kwargs: Any) -> Any:
            if str(method).upper() == "POST":
                asked.append(Post(url, {**(kwargs.get("data") or {}), **(kwargs.get("params") or {})}))
            return plain(method, url, *args, **kwargs)

        self.session.request = note  # type: ignore[method-assign]
        self.round()
        self.session.request = plain  # type: ignore[method-assign]
        return asked

    def close(self) -> None:
        self.session.close()
        self.plain.close()


def snapshot(now: int, nodes: Sequence[str]) -> Any:
    """A run on all nodes but three spares."""
    from bot.schedulers.simulated import SimulatedScheduler

    scheduler = SimulatedScheduler(now=now - 3600, gpus=GPUS)
    scheduler.add_nodes(nodes)
    scheduler.submit(JOB, len(nodes) - 3, name="llm")
    return scheduler


def replay(session: Any, asked: Sequence[Post]) -> None:
    from bot.observe import WORKERS

    with ThreadPoolExecutor(WORKERS) as pool:
        for answer in pool.map(lambda post: json.loads(session.post(post.url, data=post.form).content), asked):
            assert answer["status"] == "success", answer


# -- demo -----------------------------------------------------------------------------------------


def demo() -> dict[str, float]:
    """Wall time of a simulated week, and how soon the same seed has its first incident."""
    from bot.sandbox.demo import headless

    say(f"{DAYS} simulated days")
    told = headless(SEED, DAYS, progress=lambda passed: say(f"  day {passed // DAY}") if passed % DAY == 0 else None)
    with TemporaryDirectory(prefix="xidbot-bench-") as folder:
        headless(SEED, 1, Path(folder) / "demo.db")
        first = first_incident(Path(folder) / "demo.db")
    return {"days_per_second": round(DAYS / told["wall_s"], 3), "first_incident_s": first}


def first_incident(path: Path) -> int:
    """Simulated seconds from the first event to the first incident."""
    with reading(path) as connection:
        (opened,) = connection.execute("select min(at) from events where type = 'IncidentOpened'").fetchone()
        (began,) = connection.execute("select min(at) from events").fetchone()
    return int(opened) - int(began)


@contextmanager
def reading(path: Path) -> Iterator[Any]:
    from store.database import connect_read_only

    connection = connect_read_only(path)
    try:
        yield connection
    finally:
        connection.close()


# -- storage --------------------------------------------------------------------------------------


def stalls() -> dict[str, float]:
    say("scripted NFS counters of 60 clients")
    return storage(say)


# -- backtest -------------------------------------------------------------------------------------


def replays() -> dict[str, float]:
    say(f"a backtest of {backtest.DAYS} days of {backtest.NODES} nodes on a real VictoriaMetrics")
    return backtest.backtest(say)


def detected() -> dict[str, Any]:
    """A short piece; `python -m bench.detection` measures the whole."""
    say(f"{SHORT_SEEDS} recordings of {SHORT_DAYS} days with known failures")
    return detection(say, SHORT_SEEDS, SHORT_DAYS)


if __name__ == "__main__":
    main()
