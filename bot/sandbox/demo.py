"""Weeks of the simulated cluster in seconds: the bot as it ships, on a turned clock and without sockets."""

from __future__ import annotations

import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Any

from bot.act import act
from bot.deliver import Deliverer, deliver
from bot.model import Action, Incident, Recovery
from bot.sandbox.ahead import AheadObserver
from bot.sandbox.cluster import SimulatedCluster
from bot.sandbox.metrics import SimulatedCheckpoints, SimulatedMetrics
from bot.sandbox.parts import ZONE, CountingStore, actor, begin, demo_policy, watched, watcher
from bot.sandbox.people import OPERATOR, ROLES, VIEWER, People
from bot.sandbox.slack import CHANNEL, NOWHERE, TOKENS, BoltDesk, SimulatedChat
from bot.sender import Sender
from bot.slack import SlackRoles, web_client
from bot.state import State, fold
from bot.tick import tick
from store.database import Database
from store.slots import Slots

START = int(datetime(2026, 11, 23, tzinfo=UTC).timestamp())  # a Monday: seven days are one week of the digest
STEP = 60
DAY = 86_400


def headless(
    seed: int, days: int, db: Path | str | None = None, progress: Callable[[int], None] | None = None
) -> dict[str, Any]:
    """The same seed and days give the same answer but for `wall_s`. db: keeps the database there; it must not exist
    yet. progress: called with each simulated second that was reached."""
    began = time.perf_counter()
    with _database(db) as database:
        play = Play(seed, database)
        for now in range(START, START + days * DAY, STEP):
            play.turn(now)
            if progress and now % 3600 == 0:
                progress(now - START)
        play.close()
        told = summary(days, play.state(), play.chat.posts)
    return {**told, "wall_s": round(time.perf_counter() - began, 3)}


class Play:
    """A cluster, its people and the bot."""

    def __init__(self, seed: int, database: Database) -> None:
        policy = demo_policy()
        self.cluster = SimulatedCluster(seed, START)
        self.store = CountingStore(database)
        self.chat = SimulatedChat(now=START)
        self.desk = BoltDesk(self.chat, self.store.ask)
        self.people = People(self.cluster, self.desk, Random(f"{seed}/people"))
        roles = SlackRoles(web_client(TOKENS.bot, NOWHERE), ROLES, {})
        self.watcher = watcher(self.store, self._observer(policy), policy, roles)
        self.actor = actor(self.store, self.cluster, policy, roles)
        slots = Slots(database)
        self._sender = Sender(slots, self.chat, self.chat.clock)
        mentioned = {"on call": OPERATOR, "secondary": VIEWER}
        self.deliverer = Deliverer(self.store, slots, policy, ZONE, CHANNEL, mentioned, self._send)
        begin(self.store, policy, START)

    def _observer(self, policy: Any) -> AheadObserver:
        return AheadObserver(
            SimulatedMetrics(self.cluster),
            self.cluster.scheduler,
            SimulatedCheckpoints(self.cluster),
            policy,
            lambda: watched(self.store.state()),
            lambda: self.cluster.record.version,
        )

    def turn(self, now: int) -> None:
        """The world moves on, then the bot's three loops in order. Messages are looked at when something was recorded."""
        self.chat.now = max(self.chat.now, now)
        self.cluster.turn(now)
        self.people.turn()
        tick(self.watcher, now)
        act(self.actor, now)
        if self.store.fresh:
            self.store.fresh = False
            deliver(self.deliverer, now)

    def _send(self) -> None:
        """Until nothing is due: a reply waits for its parent's round."""
        while self._sender.send_due().calls:
            pass

    def state(self) -> State:
        """All that the log adds up to; the store's own state forgets what ended long ago."""
        return fold(event for _, event in self.store.events(limit=-1))

    def close(self) -> None:
        """What was clicked is recorded, and nobody holds the lease any more."""
        self.desk.close()
        self.store.drop_lease()


def summary(days: int, state: State, messages: int) -> dict[str, Any]:
    """Incidents are counted by episode, actions when they were done, chains but for those that another incident took
    over."""
    incidents = state.all(Incident)
    return {
        "days": days,
        "incidents": len(incidents),
        "messages": messages,
        "actions": sum(1 for action in state.all(Action) if action.end == "done"),
        "kinds": dict(sorted(Counter(incident.kind for incident in incidents).items())),
        "chains": [_chain(r, state) for r in state.all(Recovery) if r.outcome != "moved"],
    }


def _chain(recovery: Recovery, state: State) -> dict[str, Any]:
    return {
        "class": recovery.chain_class or "open",
        "attempts": len(recovery.chain),
        "regained": recovery.regained is not None,
        "survived": recovery.survived is not None,
        "kind": state.get(Incident, recovery.tag).kind,
    }


@contextmanager
def _database(path: Path | str | None) -> Iterator[Database]:
    """A kept one is as safe as the bot's own; one that is thrown away need not reach the disk."""
    with tempfile.TemporaryDirectory(prefix="xidbot-demo-") as folder:
        database = Database(path) if path else Database(Path(folder) / "demo.db", durable=False)
        try:
            yield database
        finally:
            database.close()
