"""Hours of random trouble on a turned clock; what must hold after every round, whatever happened."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable

import pytest

from bot.decide import decide
from bot.model import Action, Holder, Incident, Plan, Recovery, Session
from tests.scenarios.world import World

Make = Callable[..., World]
SEEDS = range(6)


class Trouble:
    """One thing goes wrong, or somebody does something."""

    def __init__(self, w: World, seed: int) -> None:
        self.w, self.dice = w, random.Random(seed)
        self.step = 100
        self.kinds = [
            self.fault, self.calm, self.die, self.lose, self.person_drains, self.person_requeues, self.blink, self.save,
            self.save, self.save, self.click, self.click, self.type, self.restart, self.blind, self.soft, self.heal,
        ]  # fmt: skip

    def once(self) -> None:
        self.dice.choice(self.kinds)()

    def node(self) -> str:
        return self.dice.choice(sorted(self.w.scheduler.nodes))

    def job(self) -> str:
        return self.dice.choice(sorted(self.w.scheduler.jobs))

    def alive(self, job: str) -> bool:
        return self.w.scheduler.jobs[job].attempts[-1].alive

    def fault(self) -> None:
        self.w.fault(self.node())

    def soft(self) -> None:
        self.w.fault(self.node(), "correctable_remap_growth", hard=False, evidence=0.7)

    def calm(self) -> None:
        for node, signal in list(self.w.eyes.readings):
            self.w.good(node, signal)

    def die(self) -> None:
        job = self.job()
        if self.alive(job):
            self.w.scheduler.end(job, "FAILED", self.dice.choice(["1:0", "93:0", "0:9"]))

    def lose(self) -> None:
        self.w.scheduler.lose(self.node())

    def heal(self) -> None:
        for name, node in self.w.scheduler.nodes.items():
            if not node.up:
                self.w.scheduler.release(name)

    def person_drains(self) -> None:
        name = self.node()
        if not self.w.scheduler.nodes[name].holders:
            self.w.scheduler.hold(name, Holder("person", "root", "mine", since=self.w.now))

    def person_requeues(self) -> None:
        job = self.job()
        if self.alive(job):
            self.w.scheduler.requeue(job, delay=self.dice.choice([0, 60]))

    def blink(self) -> None:
        self.w.scheduler.broken = self.dice.choice(["", "hangs"])

    def blind(self) -> None:
        self.w.eyes.metrics_problem = self.dice.choice(["", "", "no answer"])

    def save(self) -> None:
        job = self.job()
        if self.alive(job):
            self.step += 50
            self.w.save(job, self.step)

    def click(self) -> None:
        for plan in self.w.plans():
            self.w.say(
                self.dice.choice(["UOPER", "UVIEW"]), f"{self.dice.choice(['approve', 'approve', 'reject'])} {plan.id}"
            )

    def type(self) -> None:
        words = [
            f"retry {self.job()}",
            f"exclude {self.node()} odd noise",
            f"readmit {self.node()} looked at",
            "ack 1",
            "pause x",
            "resume",
        ]
        self.w.say("UADMIN", self.dice.choice(words))

    def restart(self) -> None:
        self.w.restart()


def check(w: World, foreign: set[str]) -> None:
    state = w.state
    seen = w.eyes.observe(w.now)
    for event in decide(state, seen, w.policy):
        state.apply(event)
    assert decide(state, seen, w.policy) == [], "deciding twice on the same adds nothing"
    state = w.state
    done = Counter(
        (a.operands[0], a.operands[2]) for a, key in w.gate.calls if a.verb == "requeue" and key in w.gate.done
    )
    keys = {key for a, key in w.gate.calls if a.verb == "requeue"}
    assert all(
        len([k for k in keys if k in w.gate.done and f":{job}:" in k and k.endswith(f"#{n}")]) <= 1 for job, n in done
    )
    for name in foreign:
        node = w.scheduler.nodes[name]
        assert node.ours is None or not node.others, "a foreign drain is never replaced"
    for session in state.live_sessions():
        pending = [a for a in state.all(Action) if a.session == session.key and a.end is None and a.step == "requeue"]
        assert len(pending) <= 1
        plans = [p for p in state.all(Plan) if p.session == session.key and p.status in ("proposed", "approved")]
        assert len(plans) <= 1
        recoveries = [r for r in state.open_recoveries() if r.session == session.key]
        assert len(recoveries) <= 1
    for recovery in state.all(Recovery):
        ids = [link.attempt for link in recovery.chain]
        assert len(ids) == len(set(ids))
        assert (recovery.ended is None) == (recovery.chain_class is None)
        assert all(link.survived is None or link.regained is not None for link in recovery.chain)
        for link in recovery.chain:
            fresh = (
                link.step is None
                or recovery.last_step is None
                or link.regained is None
                or link.step > recovery.last_step
            )
            assert fresh, f"{link} is not beyond {recovery.last_step}"
    keys_open = Counter((i.kind, i.subject) for i in state.all(Incident) if i.closed is None)
    assert all(n == 1 for n in keys_open.values()), "one open incident per subject"
    assert all(state.get(Session, key) for i in state.all(Incident) for key in i.hurt)


@pytest.mark.parametrize("mode", ["approve", "auto"])
@pytest.mark.parametrize("seed", SEEDS)
def test_what_must_hold_holds_through_random_trouble(world: Make, seed: int, mode: str) -> None:
    w = world(nodes=10, write_mode=mode, numbers={"caps": {"held_nodes": "4", "held_share": "0.5", "writes": "50"}})
    w.session("123", 4)
    w.session("456", 2)
    trouble = Trouble(w, seed)
    for _ in range(60):
        w.run(seconds=trouble.dice.choice([15, 30, 60, 120]))
        trouble.once()
        w.turn()
        foreign = {n.name for n in w.scheduler.nodes.values() if n.others}
        check(w, foreign)
