"""The people of the simulation: they answer what the bot asks, run things by hand when nobody asks them, and repair."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Protocol

from bot.model import Holder
from bot.sandbox.cluster import RUN_NODES, SimulatedCluster
from bot.sandbox.faults import HOUR, MINUTE, Deck
from bot.sandbox.training import JOB
from bot.sandbox.workspace.state import ADMIN, OPERATOR

ANSWERS = (2 * MINUTE, 14 * MINUTE)  # s from a message to the click
NOTICES_DEATH = (9 * MINUTE, 20 * MINUTE)  # longer than the bot's own gap between two tries
NOTICES_HANG = (50 * MINUTE, 75 * MINUTE)  # GPUs look busy; only the missing checkpoint tells
REPAIRS = (90 * MINUTE, 6 * HOUR)
HURRIED = (10 * MINUTE, 20 * MINUTE)
READMITS = (5 * MINUTE, 30 * MINUTE)


@dataclass(frozen=True, slots=True)
class Shown:
    """A button that stands in a message at present."""

    channel: str
    ts: str
    action_id: str
    value: str


class Desk(Protocol):
    """Slack from where people sit."""

    def buttons(self) -> Collection[Shown]:
        """All that stand somewhere now, oldest message first."""
        ...

    def click(self, user: str, button: Shown) -> None: ...

    def type(self, user: str, line: str) -> None:
        """A slash command."""
        ...


class People:
    """`turn` after the cluster's. answers: whether they press buttons; in the live demo that is for the visitor."""

    def __init__(self, cluster: SimulatedCluster, desk: Desk, dice: Random, *, answers: bool = True) -> None:
        self._cluster, self._desk, self._dice, self._answers = cluster, desk, dice, answers
        self._read: set[tuple[str, str]] = set()
        self._busy: set[tuple[str, bool]] = set()  # nodes that somebody works on, and whether in a hurry
        self._noticed: int | None = None  # the stop that the patience below belongs to
        self._patient_until = 0
        self._replies = Deck((self._approve,) * 5 + (self._by_hand, self._typed, self._nothing), dice, self._approve)
        self._ways = Deck((self._typed, self._typed, self._by_hand), dice)

    def turn(self) -> None:
        if self._answers:
            self._read_messages()
        self._mind_the_run()
        self._mind_the_nodes()

    # -- what the bot asks -----------------------------------------------------------------------

    def _read_messages(self) -> None:
        for button in self._desk.buttons():
            if (button.action_id, button.value) not in self._read:
                self._read.add((button.action_id, button.value))
                self._consider(button)

    def _consider(self, button: Shown) -> None:
        wait = self._dice.randint(*ANSWERS)
        if button.action_id == "approve":
            reply = self._replies.deal()
            self._cluster.later(wait, lambda: self._reply(button, reply))
        elif button.action_id == "ack" and self._dice.random() < 0.3:
            self._cluster.later(wait, lambda: self._press(button))

    def _reply(self, button: Shown, reply: Callable[[Shown | None], None]) -> None:
        """If it is still asked."""
        if button in self._desk.buttons():
            reply(button)

    def _approve(self, button: Shown | None) -> None:
        if button:
            self._press(button)

    def _press(self, button: Shown) -> None:
        if button in self._desk.buttons():
            self._desk.click(OPERATOR, button)

    def _nothing(self, button: Shown | None) -> None:
        """Asleep, or in a meeting."""

    # -- the run ---------------------------------------------------------------------------------

    def _mind_the_run(self) -> None:
        """Sooner or later somebody sees that it stands still, and does something about it."""
        run, now = self._cluster.run, self._cluster.now
        if run.stopped_at is None or run.job.state == "PENDING":
            self._noticed = None
        elif self._noticed != run.stopped_at:
            self._noticed = run.stopped_at
            self._patient_until = now + self._dice.randint(*(NOTICES_HANG if run.latest.alive else NOTICES_DEATH))
        elif now >= self._patient_until:
            self._patient_until = now + self._dice.randint(*NOTICES_DEATH)
            self._ways.deal()(None)

    def _typed(self, button: Shown | None) -> None:
        """As README says: take the node out if one is known to be bad, then run again."""
        for node in self._suspects():
            self._desk.type(OPERATOR, f"/exclude {node} {self._cluster.trouble.sick[node]}")
        self._desk.type(OPERATOR, f"/retry session-{JOB}")

    def _by_hand(self, button: Shown | None) -> None:
        """Past the bot, with the scheduler's own commands."""
        scheduler = self._cluster.scheduler
        for node in self._suspects():
            why = self._cluster.trouble.sick[node]
            scheduler.hold(node, Holder("person", "alice", why, since=self._cluster.now))
        if scheduler.jobs[JOB].state != "PENDING":
            scheduler.requeue(JOB, delay=0)
            self._cluster.run.follow()

    def _suspects(self) -> list[str]:
        """The run's bad nodes that nobody has taken out. One time in three nobody looks, and the rerun meets them."""
        nodes, sick = self._cluster.scheduler.nodes, self._cluster.trouble.sick
        bad = [node for node in self._cluster.run.nodes if node in sick and not nodes[node].holders]
        return bad if self._dice.random() < 2 / 3 else []

    # -- the nodes -------------------------------------------------------------------------------

    def _mind_the_nodes(self) -> None:
        """What is out of service is repaired, in a hurry when the run waits for it; what is well is given back."""
        short = self._short_of_nodes()
        for name in self._cluster.scheduler.nodes:
            if self._out_of_service(name) and (name, short) not in self._busy:
                ill = name in self._cluster.trouble.sick
                span = READMITS if not ill else HURRIED if short else REPAIRS
                self._busy.add((name, short))
                self._cluster.later(self._dice.randint(*span), partial(self._repair if ill else self._readmit, name))

    def _out_of_service(self, name: str) -> bool:
        node = self._cluster.scheduler.nodes[name]
        return not node.open and not (node.up and node.gpus_used)

    def _short_of_nodes(self) -> bool:
        able = [n for n in self._cluster.scheduler.nodes.values() if n.open or (n.up and n.gpus_used)]
        return len(able) <= RUN_NODES

    def _repair(self, name: str) -> None:
        self._busy -= {(name, True), (name, False)}
        if name in self._cluster.trouble.sick and self._out_of_service(name):
            self._cluster.trouble.repaired(name)

    def _readmit(self, name: str) -> None:
        """Ours through the bot, with what was done as the proof; anybody else's by whoever held it."""
        self._busy -= {(name, True), (name, False)}
        node = self._cluster.scheduler.nodes[name]
        if node.ours and node.up:
            self._desk.type(ADMIN, f"/xid readmit {name} repaired, dcgmi diag -r 3 passed")
        elif not node.open:
            self._cluster.scheduler.release(name)
