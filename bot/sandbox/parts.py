"""What the demo's bots are made of, live and headless: the policy, and everything above the ports as it ships."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import playbooks
from bot import __version__
from bot import policy as policies
from bot.act import Actor
from bot.deliver import Deliverer
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
from store.store import Store

ZONE = "UTC"
# The shipped numbers but for these: a step of a minute keeps a week short, and simulated samples arrive at once.
NUMBERS = {"time": {"step": "60s", "lag": "0s"}}


def demo_policy() -> Policy:
    """The shipped playbooks below the highest ceiling: a dead run is brought back by itself, a running one after a
    click."""
    rule = SessionRule(match=Match(qos=QOS))
    return policies.build(policy=NUMBERS, playbooks=playbooks.load(None, STEPS), sessions=[rule], write_mode="auto")


class CountingStore(Store):
    """fresh: something was recorded since it was last set to False. What nothing has changed need not be looked at."""

    fresh = True

    def append(self, events: Sequence[Event]) -> None:
        super().append(events)
        self.fresh = self.fresh or bool(events)


def begin(store: Store, policy: Policy, now: int) -> None:
    store.append([Started(now, __version__, policy.hash, policy.write_mode)])


def watched(state: State) -> Mapping[str, Sequence[str]]:
    return {job: (job, session.job_name, session.name) for session in state.live_sessions() for job in session.jobs}


def watcher(store: Store, observer: Observer, policy: Policy, roles: Roles) -> Watcher:
    def tell(request: Request, state: State, seen: Observation, now: int) -> Told:
        reply = answer(request, Services(state, seen, policy, roles, now))
        return Told(reply.text, tuple(reply.events), reply.ok)

    return Watcher(store, observer, policy, tell)


def actor(store: Store, cluster: SimulatedCluster, policy: Policy, roles: Roles) -> Actor:
    return Actor(store, cluster.scheduler, cluster.gate, roles, policy)


__all__ = ["Actor", "CountingStore", "Deliverer", "actor", "begin", "demo_policy", "watched", "watcher"]
