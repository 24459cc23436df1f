"""The demo as a whole: what a week holds, that it repeats, what it costs beside deciding, and the live one's pace."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from click.testing import CliRunner

from bot.cli_demo import demo
from bot.errors import ConfigError
from bot.observe import LiveObserver
from bot.sandbox.demo import DAY, START, Play, headless, summary
from bot.sandbox.live import LiveDemo, live, open_demo, waiting
from bot.sandbox.metrics import SimulatedCheckpoints, SimulatedMetrics
from bot.sandbox.parts import STEP, demo_database, watched
from bot.sandbox.workspace import OPERATOR
from bot.weeks import week_of
from store.store import check
from tests.real.supervise import eventually

TURN_OVER_LOOK = 0.75  # a turn of everything over one look of the live observer; measured 0.13 to 0.35


class Week:
    """Seven days of one seed, kept."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with demo_database(path) as database:
            play = Play(7, database)
            for now in range(START, START + 7 * DAY, STEP):
                play.turn(now)
            play.close()
            self.state = play.state()
            self.told = summary(7, self.state, play.chat.posts)
            self.whispers = play.chat.whispers
            self.faults = Counter(struck.kind for struck in play.cluster.trouble.struck)
            self.lemons = play.cluster.trouble.lemons
            self.struck = play.cluster.trouble.struck


@pytest.fixture(scope="module")
def week(tmp_path_factory: pytest.TempPathFactory) -> Week:
    return Week(tmp_path_factory.mktemp("demo") / "week.db")


# -- a week ------------------------------------------------------------------------------------------------------------


@pytest.mark.timeout(600)
def test_a_week_holds_what_the_bot_is_for(week: Week) -> None:
    told = week.told
    classes = Counter(chain["class"] for chain in told["chains"])
    assert len(week.faults) >= 6 and len(told["kinds"]) >= 4
    assert {"gpu_fault", "session_failed", "precursor", "blind"} <= set(told["kinds"])
    assert all(classes[name] for name in ("automated", "assisted", "manual"))
    assert any(chain["attempts"] > 1 for chain in told["chains"]), "a retry that failed"
    assert told["incidents"] == sum(told["kinds"].values())
    assert told["messages"] > told["incidents"] and told["actions"] > 20


def test_a_few_nodes_cause_most_of_the_trouble(week: Week) -> None:
    of_nodes = [struck for struck in week.struck if struck.kind not in ("prometheus_blind", "application")]
    assert sum(struck.node in week.lemons for struck in of_nodes) > len(of_nodes) / 3


def test_the_kept_record_adds_up(week: Week) -> None:
    assert check(week.path) == []


def test_the_digest_of_the_week_says_the_same(week: Week) -> None:
    from bot.digest import read_digest

    digest = read_digest(week.path, week_of("2026-W48", "UTC"), START + 7 * DAY).as_json()
    assert digest["kinds"] == week.told["kinds"]
    assert digest["chains"] == week.told["chains"]
    assert digest["noise"]["messages"] == week.told["messages"]


def test_an_incident_comes_within_ten_minutes(week: Week) -> None:
    from bot.model import Incident

    assert min(incident.opened for incident in week.state.all(Incident)) - START <= 600


def test_what_people_typed_was_understood(week: Week) -> None:
    refused = [text for _, text in week.whispers if ":no_entry:" in text]
    assert len(week.whispers) > 10 and len(refused) <= len(week.whispers) / 10, refused


# -- again, elsewhere, and what it costs -------------------------------------------------------------------------------


@pytest.fixture
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("a socket was connected")

    monkeypatch.setattr(socket.socket, "connect", refuse)


@pytest.mark.usefixtures("no_network")
def test_the_same_seed_tells_the_same_without_any_socket(tmp_path: Path) -> None:
    kept, passed = tmp_path / "kept.db", list[int]()
    done = CliRunner().invoke(demo, ["--headless", "--seed", "11", "--days", "1", "--json", "--db", str(kept)])
    assert done.exit_code == 0, done.output
    first, again = json.loads(done.stdout), headless(11, 1, progress=passed.append)
    assert set(first) == {"days", "incidents", "messages", "actions", "kinds", "chains", "wall_s"}
    assert first.pop("wall_s") > 0 and again.pop("wall_s") > 0
    assert first == again and first["days"] == 1 and first["incidents"] > 1
    assert check(kept) == [] and passed == list(range(0, DAY, 3600))
    with pytest.raises(ConfigError, match="exists already"):
        headless(11, 1, kept)


def test_a_whole_turn_costs_less_than_looking_each_time_would() -> None:
    turns = looks = 0.0
    with demo_database(None) as database:
        play = Play(3, database)
        eyes = live_eyes(play)
        for now in range(START, START + DAY // 2, STEP):
            turns += spent(partial(play.turn, now))
            if now % 600 == 0:
                looks += spent(partial(eyes.observe, now))
        play.close()
    assert turns / (DAY // 2 / STEP) <= TURN_OVER_LOOK * looks / (DAY // 2 / 600)


def live_eyes(play: Play) -> LiveObserver:
    cluster, metrics = play.cluster, SimulatedMetrics(play.cluster)
    ports = metrics, cluster.scheduler, SimulatedCheckpoints(cluster), play.watcher.policy
    return LiveObserver(*ports, lambda: watched(play.store.state()), metrics.details)


def spent(do: Callable[[], object]) -> float:
    began = time.process_time()
    do()
    return time.process_time() - began


# -- the command -------------------------------------------------------------------------------------------------------


def test_without_json_it_says_it_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    chain = {"class": "automated", "attempts": 2, "regained": True, "survived": False, "kind": "gpu_fault"}
    told = {"days": 2, "incidents": 3, "messages": 9, "actions": 4, "kinds": {"blind": 1, "gpu_fault": 2},
            "chains": [chain, chain], "wall_s": 1.25}  # fmt: skip
    monkeypatch.setattr("bot.sandbox.demo.headless", lambda *given: told)
    done = CliRunner().invoke(demo, ["--headless", "--days", "2"])
    assert done.stdout.splitlines() == [
        "2 simulated days in 1.2 s",
        "3 incidents: 1 blind, 2 gpu_fault",
        "9 messages, 4 actions",
        "automated: 2 chains, 4 attempts, 2 regained, 0 survived",
    ]


@pytest.mark.parametrize("wrong", [["--days", "0"], ["--speed", "0"], ["--seed", "x"]])
def test_what_cannot_be_is_refused(wrong: list[str]) -> None:
    assert CliRunner().invoke(demo, ["--headless", *wrong]).exit_code == 2


# -- live --------------------------------------------------------------------------------------------------------------


@pytest.fixture
def running() -> Iterator[LiveDemo]:
    with open_demo(3, 600) as opened:
        yield opened


def look(running: LiveDemo, until: Callable[[], object], within: float = 30) -> None:
    def looked() -> object:
        running.look()
        return until()

    eventually(looked, every=0.05, within=within, why=f"{until}")


def approve(running: LiveDemo, plan: str) -> None:
    for message in running.server.workspace.channel():
        elements = [e for block in message.blocks if block["type"] == "actions" for e in block["elements"]]  # type: ignore[attr-defined]
        if {"action_id": "approve", "value": plan} in [{k: e[k] for k in ("action_id", "value")} for e in elements]:
            assert running.server.click(OPERATOR, message.ts, "approve")


def test_it_runs_fast_until_somebody_is_needed_and_on_after_the_click(running: LiveDemo) -> None:
    began, start = time.monotonic(), running.clock.now()
    assert running.pace == 600
    look(running, lambda: running.waits_for and running.server.workspace.channel())
    assert time.monotonic() - began < 60 and running.clock.now() - start <= 600
    assert running.pace == 1 and "waits for you: approve or reject plan 1.1.1" in running.status()
    before = running.clock.now()
    time.sleep(0.5)
    assert running.clock.now() - before < 2
    approve(running, "1.1.1")
    look(running, lambda: not running.waits_for)
    assert running.pace == 600 and "nobody is needed" in running.status()
    look(running, lambda: running.cluster.run.latest.id.endswith("#1"))
    thread = running.server.workspace.channel()[0].ts
    look(running, lambda: any("is running, approved" in m.text for m in running.server.workspace.replies(thread)))


def test_what_is_typed_in_the_page_is_answered_at_once(running: LiveDemo) -> None:
    look(running, lambda: running.server.connected)
    assert running.server.type(OPERATOR, "/xid help")
    look(running, lambda: any("/retry SESSION" in m.text for m in running.server.workspace.whispers(OPERATOR)))


class Paper:
    def __init__(self) -> None:
        self.said: list[str] = []
        self.shown: list[str] = []

    def say(self, text: str) -> None:
        self.said.append(text)

    def status(self, text: str) -> None:
        self.shown.append(text)


def test_the_live_demo_shows_where_it_is_and_leaves_nothing_behind(tmp_path: Path) -> None:
    paper, looks = Paper(), iter([False] * 20)
    before = threading.active_count()
    live(1, 600, paper, tmp_path / "kept.db", lambda seconds: next(looks, True))
    assert paper.said[0].startswith("Open http://127.0.0.1:") and "The database is kept in" in paper.said[-1]
    assert len(paper.shown) == 20 and " · " in paper.shown[0]
    assert check(tmp_path / "kept.db") == []
    eventually(lambda: threading.active_count() <= before, within=5, why="its threads have ended")


def test_nobody_is_waited_for_in_an_empty_state() -> None:
    from bot.state import State

    assert waiting(State()) == ""


def test_ctrl_c_ends_it_cleanly() -> None:
    words = [sys.executable, "-c", "from bot.cli_demo import demo; demo()"]
    env = {**os.environ, "PYTHONUNBUFFERED": "1"}
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env)
    assert process.stdout
    assert process.stdout.readline().startswith("Open http://127.0.0.1:")
    time.sleep(0.5)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=30)
    assert (process.returncode, err) == (0, "") and out.endswith("Stopped.\n")
