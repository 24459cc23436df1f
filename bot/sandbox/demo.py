"""Weeks of the simulated cluster in seconds: the bot as it ships, on a turned clock and without sockets."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Any

from bot.act import act
from bot.deliver import Deliverer, deliver
from bot.model import Action, Incident, Recovery
from bot.outcomes import Chain, chains
from bot.policy import Policy
from bot.sandbox.ahead import AheadObserver
from bot.sandbox.cluster import SimulatedCluster
from bot.sandbox.metrics import SimulatedCheckpoints, SimulatedMetrics
from bot.sandbox.parts import STEP, ZONE, DemoStore, actor, begin, demo_database, demo_policy, quiet, watched, watcher
from bot.sandbox.people import People
from bot.sandbox.slack import NOWHERE, TOKENS, BoltDesk, SimulatedChat
from bot.sandbox.workspace.state import ADMIN, CHANNEL, OPERATOR, VIEWER
from bot.sender import Sender
from bot.slack import SlackRoles, web_client
from bot.state import State, fold
from bot.tick import tick
from store.database import Database
from store.slots import Slots

START = int(datetime(2026, 11, 23, tzinfo=UTC).timestamp())  # a Monday: seven days are one week of the digest
DAY = 86_400
ROLES = {"admin": [ADMIN], "operator": [OPERATOR], "viewer": [VIEWER]}

Progress = Callable[[int], None]


def headless(seed: int, days: int, db: Path | str | None = None, progress: Progress | None = None) -> dict[str, Any]:
    """The same seed and days give the same answer but for `wall_s`. db: keeps the database there. progress: is told how
    many simulated seconds have passed, once an hour. Raises ConfigError for a database that exists."""
    began = time.perf_counter()
    with demo_database(db) as database, quiet():
        play = Play(seed, database)
        try:
            for passed in range(0, days * DAY, STEP):
                play.turn(START + passed)
                if progress and passed % 3600 == 0:
                    progress(passed)
            told = summary(days, play.state(), play.chat.posts)
        finally:
            play.close()
    return {**told, "wall_s": round(time.perf_counter() - began, 3)}


class Play:
    """A cluster, its people and the bot."""

    def __init__(self, seed: int, database: Database) -> None:
        policy = demo_policy()
        self.cluster = SimulatedCluster(seed, START)
        self.store = DemoStore(database)
        self.chat = SimulatedChat(now=START)
        self.desk = BoltDesk(self.chat, self.store.ask)
        self.people = People(self.cluster, self.desk, Random(f"{seed}/people"))
        roles = SlackRoles(web_client(TOKENS.bot, NOWHERE), ROLES, {})
        self.watcher = watcher(self.store, self._observer(policy), policy, roles)
        self.actor = actor(self.store, self.cluster, policy, roles)
        slots = Slots(database)
        self._sender = Sender(slots, self.chat, self.chat.clock)
        calls = {"on call": OPERATOR, "secondary": ADMIN}
        self.deliverer = Deliverer(self.store, slots, policy, ZONE, CHANNEL, calls, self._send)
        begin(self.store, policy, START)

    def _observer(self, policy: Policy) -> AheadObserver:
        return AheadObserver(
            SimulatedMetrics(self.cluster),
            self.cluster.scheduler,
            SimulatedCheckpoints(self.cluster),
            policy,
            lambda: watched(self.store.state()),
            lambda: self.cluster.record.version,
        )

    def turn(self, now: int) -> None:
        """The world moves on, then the bot's three loops in order; the third only when there is news."""
        self.chat.now = max(self.chat.now, now)
        self.cluster.turn(now)
        self.people.turn()
        tick(self.watcher, now)
        act(self.actor, now)
        if self.store.fresh:
            self.store.fresh = False
            deliver(self.deliverer, now)

    def _send(self) -> None:
        """Until nothing is due: a reply is due only after its parent was posted."""
        while self._sender.send_due().calls:
            pass

    def state(self) -> State:
        """All that the log adds up to; the store's own state forgets what ended long ago."""
        return fold(event for _, event in self.store.events(limit=-1))

    def close(self) -> None:
        self.desk.close()
        self.store.drop_lease()


def summary(days: int, state: State, messages: int) -> dict[str, Any]:
    """Incidents count by episode, actions when they were done, messages when they were posted, in threads too."""
    incidents = state.all(Incident)
    kinds = {incident.tag: incident.kind for incident in incidents}
    return {
        "days": days,
        "incidents": len(incidents),
        "messages": messages,
        "actions": sum(action.end == "done" for action in state.all(Action)),
        "kinds": dict(sorted(Counter(kinds.values()).items())),
        "chains": [_told(chain) for chain in chains(state.all(Recovery), kinds, START + days * DAY)],
    }


def _told(chain: Chain) -> dict[str, Any]:
    facts = {name: getattr(chain, name) for name in ("attempts", "regained", "survived", "kind")}
    return {"class": chain.chain_class, **facts}
