"""A small world on a turned clock: simulated scheduler and gate, readings by hand, the real store and the real loops.

w = World()
w.session("123", nodes=4)
w.run(minutes=2)
w.fault("node-01", "xid_reboot", text="Xid 79 on GPU 3")
w.run(minutes=1)
assert w.incident("gpu_fault", "node-01")
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import playbooks
from bot import policy as policies
from bot.act import Actor, act
from bot.model import (
    Answer,
    AppXid,
    Checkpoint,
    Incident,
    Mode,
    NodeScore,
    Observation,
    Plan,
    Reading,
    Recovery,
    Request,
    Role,
    Session,
    SourceState,
)
from bot.plans import STEPS
from bot.policy import Match, Policy, SessionRule
from bot.schedulers.simulated import SimulatedGate, SimulatedScheduler
from bot.state import State
from bot.tick import Told, Watcher, tick
from commands.run import Services, answer
from store.store import Store

T0 = 1_800_000_000
STEP = 15

NUMBERS = {
    "recovery": {
        "gap": "30s",
        "gap_max": "2m",
        "load_time": "2m",
        "checkpoint_interval": "2m",
        "survived_after": "5m",
        "settle": "30s",
    },
    "incidents": {"clean_after": "5m", "precursor_good_after": "10m"},
}


Make = Callable[..., "World"]


def running(make: Make, **facts: object) -> World:
    """A world in which session-123 runs on node-01…04 and has saved at step 100."""
    w = make(**facts)
    w.session("123")
    w.run(minutes=1)
    w.save("123", 100)
    w.run(minutes=1)
    return w


class People:
    """U-ADMIN, U-OPER and U-VIEW have the role of their name; anybody else is nobody."""

    def __init__(self) -> None:
        self.roles: dict[str, Role] = {"UADMIN": "admin", "UOPER": "operator", "UVIEW": "viewer"}

    def of(self, user: str) -> Role | None:
        return self.roles.get(user)


@dataclass
class Eyes:
    """An observer whose scores are set by hand and whose cluster is the simulation's."""

    scheduler: SimulatedScheduler
    readings: dict[tuple[str, str], Reading] = field(default_factory=dict)
    checkpoints: list[Checkpoint] = field(default_factory=list)
    app_xids: list[AppXid] = field(default_factory=list)
    sudden: set[str] = field(default_factory=set)  # nodes of which the driver reports something
    metrics_problem: str = ""

    def observe(self, now: int) -> Observation:
        try:
            cluster = self.scheduler.snapshot(now)
            problem = ""
        except Exception as error:  # noqa: BLE001 - what LiveObserver turns into a source's problem
            cluster, problem = None, str(error)
        sources = (SourceState("scheduler", problem), SourceState("prometheus", self.metrics_problem))
        if self.metrics_problem:
            return Observation(now, now, cluster, None, (), tuple(self.checkpoints), sources)
        readings = tuple(self._readings(now))
        scores, saves = self._scores(readings), tuple(self.checkpoints)
        return Observation(now, now, cluster, scores, readings, saves, sources, app_xids=tuple(self.app_xids))

    def _readings(self, now: int) -> Iterator[Reading]:
        for name in self.scheduler.nodes:
            if not any(node == name for node, _ in self.readings):
                yield Reading(name, "gpu_missing", "good")
        yield from self.readings.values()

    def _scores(self, readings: tuple[Reading, ...]) -> dict[str, NodeScore]:
        scores = {}
        for node in {r.node for r in readings}:
            mine = tuple(sorted((r for r in readings if r.node == node), key=lambda r: -r.evidence))
            bad = [r for r in mine if r.state == "bad"]
            top = max((r.evidence for r in bad), default=0.0)
            hard = any(r.hard for r in bad)
            soft_for, sudden = 600 if bad else 0, node in self.sudden
            scores[node] = NodeScore(node, top, hard, mine, soft_for=soft_for, known=mine[0].known, sudden=sudden)
        return scores


class World:
    def __init__(
        self,
        tmp: Path,
        *,
        nodes: int = 8,
        write_mode: Mode = "approve",
        numbers: dict[str, object] | None = None,
        site_playbooks: list[object] | None = None,
        controller: str = "xidbot",
    ) -> None:
        self.now = T0
        self.scheduler = SimulatedScheduler(now=T0)
        self.scheduler.add_nodes([f"node-{i:02d}" for i in range(1, nodes + 1)])
        self.gate = SimulatedGate(self.scheduler)
        self.eyes = Eyes(self.scheduler)
        self.people = People()
        self.policy = self._policy(write_mode, numbers or {}, site_playbooks, controller)
        self.path = tmp / "xidbot.db"
        self.store = Store.open(self.path)

    def _policy(self, mode: Mode, numbers: dict[str, object], books: list[object] | None, controller: str) -> Policy:
        from bot.yamlfile import merged

        rule = SessionRule(match=Match(qos="pretrain"), controller=controller)
        return policies.build(
            policy=merged(NUMBERS, numbers),
            playbooks=playbooks.load(books, STEPS),
            sessions=[rule],
            write_mode=mode,
        )

    # -- the loops -------------------------------------------------------------------------------

    def turn(self) -> None:
        """One step of the clock and one round of both loops."""
        self.now += STEP
        self.scheduler.turn(self.now)
        tick(Watcher(self.store, self.eyes, self.policy, self._answer), self.now)
        act(Actor(self.store, self.scheduler, self.gate, self.people, self.policy), self.now)

    def run(self, *, minutes: float = 0, seconds: float = 0) -> None:
        until = self.now + minutes * 60 + seconds
        while self.now < until:
            self.turn()

    def _answer(self, request: Request, state: State, seen: Observation, now: int) -> Told:
        reply = answer(request, Services(state, seen, self.policy, self.people, now))
        return Told(reply.text, tuple(reply.events), reply.ok)

    def restart(self) -> None:
        """The bot dies and another begins on the same database."""
        self.store.close()
        self.store = Store.open(self.path)

    # -- what happens ----------------------------------------------------------------------------

    def session(self, job: str, nodes: int = 4, **facts: object) -> None:
        self.scheduler.submit(job, nodes, **facts)

    def save(self, job: str, step: int, seconds_ago: int = 0) -> None:
        """A completed checkpoint, begun 5 s before it was done."""
        done = self.now - seconds_ago
        self.eyes.checkpoints = [c for c in self.eyes.checkpoints if c.job != job]
        self.eyes.checkpoints.append(Checkpoint(job, step, done - 5, done))

    def fault(self, node: str, signal: str = "xid_reboot", **facts: object) -> None:
        given = {"evidence": 1.0, "hard": True, "value": 79.0, "text": "Xid 79", "since": self.now} | facts
        self.eyes.readings[node, signal] = Reading(node, signal, "bad", **given)  # type: ignore[arg-type]

    def good(self, node: str, signal: str = "xid_reboot", value: float | None = None) -> None:
        self.eyes.readings[node, signal] = Reading(node, signal, "good", value=value)

    def unknown(self, node: str, signal: str = "gpu_missing", muted: bool = False) -> None:
        self.eyes.readings[node, signal] = Reading(node, signal, "unknown", muted=muted)

    def say(self, user: str, text: str, dedupe: str = "") -> str:
        """Type a command, let a round go by, and read the answer."""
        number = self.store.ask(Request(text=text, user=user, at=self.now, dedupe=dedupe))
        self.turn()
        return self.reply(number)

    def reply(self, number: int) -> str:
        found = self.store.state().find(Answer, str(number))
        return found.reply if found else ""

    # -- looks -----------------------------------------------------------------------------------

    @property
    def state(self) -> State:
        return self.store.state()

    def incident(self, kind: str, subject: str) -> Incident | None:
        mine = [i for i in self.state.all(Incident) if (i.kind, i.subject) == (kind, subject)]
        return max(mine, key=lambda i: (i.id, i.episode), default=None)

    def plans(self, status: str = "proposed") -> list[Plan]:
        return sorted((p for p in self.state.all(Plan) if p.status == status), key=lambda p: p.id)

    def recovery(self, job: str) -> Recovery:
        mine = [r for r in self.state.all(Recovery) if self.state.get(Session, r.session).name == f"session-{job}"]
        return max(mine, key=lambda r: r.stopped)

    def verbs(self) -> list[str]:
        """What the gate was asked to do."""
        return [argv.verb for argv, _ in self.gate.calls]

    def events(self, name: str) -> list[object]:
        return [e for _, e in self.store.events() if type(e).__name__ == name]
