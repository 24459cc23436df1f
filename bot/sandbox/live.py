"""`make demo`: the simulated cluster and the bot in a local workspace, fast until somebody is needed, then at the pace
of people."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from random import Random
from typing import Protocol

from bot.act import act
from bot.deliver import Deliverer, deliver
from bot.model import Plan, Request
from bot.observe import LiveObserver
from bot.policy import Policy
from bot.ports import Roles
from bot.sandbox.cluster import SimulatedCluster
from bot.sandbox.metrics import SimulatedCheckpoints, SimulatedMetrics
from bot.sandbox.parts import STEP, ZONE, DemoStore, actor, begin, demo_database, demo_policy, quiet, watched, watcher
from bot.sandbox.people import People, Shown
from bot.sandbox.workspace import Server, Workspace, serve, slack_site
from bot.sender import Sender
from bot.slack import SlackApp, SlackChat, SlackRoles, Tokens, build_app, web_client
from bot.state import State
from bot.tick import tick
from store.database import Database
from store.slots import Slots

LOOKS = 0.1  # s of wall time between two looks at the clock
TOPIC_EVERY = 10  # looks; the page shows the same line
LONGEST = 2.0  # s that count at most between two: after a suspend or a debugger the demo goes on where it was


class WarpClock:
    """Simulated seconds; `speed` of them go by in one real second."""

    def __init__(self, start: float) -> None:
        self._then, self._real, self.speed = start, time.monotonic(), 1.0
        self._lock = threading.RLock()

    def now(self) -> float:
        with self._lock:
            return self._then + min(LONGEST, time.monotonic() - self._real) * self.speed

    def run_at(self, speed: float) -> float:
        """From now on; returns the present moment. Must be called more often than every LONGEST seconds."""
        with self._lock:
            self._then, self._real, self.speed = self.now(), time.monotonic(), speed
            return self._then


class WorkspaceDesk:
    """Implements people.Desk on the local workspace. Its buttons are for the visitor."""

    def __init__(self, server: Server) -> None:
        self._server = server

    def buttons(self) -> Collection[Shown]:
        return ()

    def click(self, user: str, button: Shown) -> None:
        self._server.click(user, button.ts, button.action_id)

    def type(self, user: str, line: str) -> None:
        self._server.type(user, line)


class Screen(Protocol):
    """Where progress is shown."""

    def say(self, text: str) -> None:
        """Stays."""
        ...

    def status(self, text: str) -> None:
        """Replaces the one before."""
        ...


class LiveDemo:
    """Everything on one thread but Slack's own: the world, then the bot's three loops, once in a simulated minute and
    as soon as somebody has asked something."""

    def __init__(self, seed: int, speed: float, server: Server, clock: WarpClock, database: Database) -> None:
        self.clock, self.speed, self.server = clock, speed, server
        self.store = DemoStore(database)
        self.slots = Slots(database)
        start = int(clock.now()) // STEP * STEP
        self.cluster = SimulatedCluster(seed, start)
        self.people = People(self.cluster, WorkspaceDesk(server), Random(f"{seed}/people"), answers=False)
        policy, site = demo_policy(), slack_site(server)
        tokens = Tokens(server.bot_token, server.app_token)
        client = web_client(tokens.bot, server.api_url)
        roles: Roles = SlackRoles(client, site.roles.model_dump(), site.users)
        self._watcher = watcher(self.store, self._observer(policy), policy, roles)
        self._actor = actor(self.store, self.cluster, policy, roles)
        sender = Sender(self.slots, SlackChat(client), clock.now)
        calls = {"on call": site.on_call, "secondary": site.secondary}
        self._deliverer = Deliverer(self.store, self.slots, policy, ZONE, site.channel, calls, sender.send_due)
        self._asked = threading.Event()
        self.slack: SlackApp = build_app(tokens, self._ask, base_url=server.api_url, clock=clock.now)
        self._next = start
        begin(self.store, policy, start)

    def _observer(self, policy: Policy) -> LiveObserver:
        metrics = SimulatedMetrics(self.cluster)
        return LiveObserver(
            metrics,
            self.cluster.scheduler,
            SimulatedCheckpoints(self.cluster),
            policy,
            lambda: watched(self.store.state()),
            metrics.details,
        )

    def _ask(self, request: Request) -> None:
        """On a thread of Bolt's."""
        self.store.ask(request)
        self._asked.set()

    # -- turns -----------------------------------------------------------------------------------

    def look(self) -> None:
        """What has become due since the last look."""
        now = self.clock.run_at(self.pace)
        while self._next <= now:
            self._turn(self._next)
            self._next += STEP
            if self.waits_for:
                self.clock.run_at(1)
                break
        if self._asked.is_set():
            self._asked.clear()
            self._turn(int(self.clock.now()))
        if self.store.fresh or self.slots.waiting():
            self.store.fresh = False
            deliver(self._deliverer, int(self.clock.now()))

    def _turn(self, now: int) -> None:
        self.cluster.turn(max(now, self.cluster.now))
        self.people.turn()
        tick(self._watcher, now)
        act(self._actor, now)

    @property
    def pace(self) -> float:
        return 1.0 if self.waits_for else self.speed

    @property
    def waits_for(self) -> str:
        """The plan that somebody must decide; empty when nobody has to."""
        return waiting(self.store.state())

    def status(self) -> str:
        """One line: when, how fast, where the run is, what is open, and whom it waits for."""
        run, state, waits = self.cluster.run, self.store.state(), self.waits_for
        number = len(state.open_incidents())
        parts = [
            f"{datetime.fromtimestamp(self.clock.now(), UTC):%a %H:%M} {self.pace:g}×",
            run.spoken,
            f"{number} open incident{'' if number == 1 else 's'}",
            f"waits for you: approve or reject plan {waits}" if waits else "nobody is needed",
        ]
        return " · ".join(parts)

    def close(self) -> None:
        self.slack.stop()
        self.store.drop_lease()


def waiting(state: State) -> str:
    asked = [p for p in state.all(Plan) if p.status == "proposed" and p.mode in ("approve", "veto")]
    return min(asked, key=lambda p: p.proposed).id if asked else ""


# -- the whole ---------------------------------------------------------------------------------------------------------


@contextmanager
def open_demo(seed: int, speed: float, db: Path | str | None = None) -> Iterator[LiveDemo]:
    """A demo whose bot is connected. Raises ConfigError for a database that exists."""
    clock = WarpClock(time.time() // STEP * STEP)
    with demo_database(db) as database, quiet(), serve(Workspace(clock=clock.now, tz=UTC)) as server:
        demo = LiveDemo(seed, speed, server, clock, database)
        try:
            demo.slack.start()
            yield demo
        finally:
            demo.close()


def live(seed: int, speed: float, screen: Screen, db: Path | str | None, stopped: Callable[[float], bool]) -> None:
    """Until stopped; `stopped` waits for as many seconds, or less when it is so."""
    with open_demo(seed, speed, db) as demo:
        screen.say(f"Open {demo.server.url}")
        screen.say("A fault comes within seconds. Read it, click Approve, and watch the run come back. Ctrl-C ends.")
        for look in count():
            if stopped(LOOKS):
                break
            demo.look()
            screen.status(demo.status())
            if look % TOPIC_EVERY == 0:
                demo.server.workspace.topic = demo.status()
    screen.say("Stopped." if db is None else f"Stopped. The database is kept in {db}.")
