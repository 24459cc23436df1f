"""What the demo's bots are made of, live and headless: the policy, and everything above the ports as it ships."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import playbooks
from bot import __version__
from bot import policy as policies
from bot.act import Actor
from bot.errors import ConfigError
from bot.events import Event, Started
from bot.model import Observation, Request
from bot.plans import STEPS
from bot.policy import Match, Policy, SessionRule
from bot.ports import Observer, Roles
from bot.sandbox.cluster import SimulatedCluster
from bot.sandbox.training import QOS
from bot.state import State
from bot.tick import Told, Watcher
from commands.run import Services, answer
from store.database import Database
from store.store import Store

STEP = 60
ZONE = "UTC"
TRIM_EVERY = 3600
# The shipped numbers but for these: a step of a minute keeps a week short, and simulated samples arrive at once.
NUMBERS = {"time": {"step": f"{STEP}s", "lag": "0s"}}


def demo_policy() -> Policy:
    """The shipped playbooks below the highest ceiling: a dead run is brought back by itself, a running one after a
    click."""
    rule = SessionRule(match=Match(qos=QOS))
    return policies.build(policy=NUMBERS, playbooks=playbooks.load(None, STEPS), sessions=[rule], write_mode="auto")


@contextmanager
def demo_database(path: Path | str | None) -> Iterator[Database]:
    """A kept one is as safe as the bot's own; one that is thrown away need not reach the disk. Raises ConfigError for a
    file that exists: another simulation's runs would never end in this one."""
    if path and Path(path).exists():
        raise ConfigError(f"{path} exists already", "the demo begins with an empty database: name a new file")
    with TemporaryDirectory(prefix="xidbot-demo-") as folder:
        database = Database(path) if path else Database(Path(folder) / "demo.db", durable=False)
        try:
            yield database
        finally:
            database.close()


class DemoStore(Store):
    """The bot's own, which knows that nobody else writes to it: what could not have changed is not looked up.

    fresh: something was recorded since it was last set to False.
    """

    fresh = True
    _asked = True
    _trimmed = 0

    def append(self, events: Sequence[Event]) -> None:
        super().append(events)
        self.fresh = self.fresh or bool(events)

    def ask(self, request: Request) -> int:
        self._asked = True
        return super().ask(request)

    def inbox(self) -> list[Request]:
        waiting = super().inbox() if self._asked else []
        self._asked = bool(waiting)
        return waiting

    def trim(self, now: int) -> None:
        if now - self._trimmed >= TRIM_EVERY:
            self._trimmed = now
            super().trim(now)


def begin(store: Store, policy: Policy, now: int) -> None:
    """Say with which policy decisions are made, as the bot does."""
    store.append([Started(now, __version__, policy.hash, policy.write_mode)])


def watched(state: State) -> Mapping[str, Sequence[str]]:
    """Jobs of live sessions with the names that a trainer may export them under."""
    return {job: (job, session.job_name, session.name) for session in state.live_sessions() for job in session.jobs}


def watcher(store: Store, observer: Observer, policy: Policy, roles: Roles) -> Watcher:
    def tell(request: Request, state: State, seen: Observation, now: int) -> Told:
        reply = answer(request, Services(state, seen, policy, roles, now))
        return Told(reply.text, tuple(reply.events), reply.ok)

    return Watcher(store, observer, policy, tell)


def actor(store: Store, cluster: SimulatedCluster, policy: Policy, roles: Roles) -> Actor:
    return Actor(store, cluster.scheduler, cluster.gate, roles, policy)


@contextmanager
def quiet() -> Iterator[None]:
    """What goes wrong in the simulation is meant to: it is in the messages, not on the terminal. Slack's client talks
    of a socket that the local workspace closes before it at the end."""
    logs = [logging.getLogger(name) for name in ("bot", "slack_sdk", "slack_bolt")]
    before = [log.level for log in logs]
    for log in logs:
        log.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        for log, level in zip(logs, before, strict=True):
            log.setLevel(level)
