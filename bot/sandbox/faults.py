"""What goes wrong in the simulated cluster. Kinds and shapes are the study's (arXiv 2605.09370 and its readers); they
come some thirty times as often, so that a week shows every one of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Generic, TypeVar

from bot.model import Attempt
from bot.sandbox.record import EVERYWHERE

if TYPE_CHECKING:
    from bot.sandbox.cluster import SimulatedCluster

T = TypeVar("T")
MINUTE, HOUR = 60, 3600
FIRST = 3 * MINUTE  # s until the first fault: an incident within ten minutes
BETWEEN = (3 * HOUR, 8 * HOUR)  # of what hurts the run
SETTLED = 160 * MINUTE  # a run this old has regained and survived: what comes now is another story
NUISANCES = (8 * HOUR, 20 * HOUR)  # between those that hurt nobody
LEMONS = 3  # nodes that make most of the trouble: three of 63 caused over half of the study's exclusions
LEMON_SHARE = 0.6


class Deck(Generic[T]):
    """Deals every card before any comes again, so that a short run has them all."""

    def __init__(self, cards: Sequence[T], dice: Random, first: T | None = None) -> None:
        self._cards, self._dice = list(cards), dice
        self._left: list[T] = [] if first is None else [first]

    def deal(self) -> T:
        if not self._left:
            self._left = list(self._cards)
            self._dice.shuffle(self._left)
        return self._left.pop()


@dataclass(frozen=True, slots=True)
class Struck:
    """The truth about one fault, for those who count afterwards."""

    at: int
    kind: str
    node: str


class Trouble:
    """`sick` are the nodes that no run survives on, with what they have; `struck` is all that ever happened."""

    def __init__(self, cluster: SimulatedCluster, dice: Random) -> None:
        self.cluster, self.dice = cluster, dice
        self.lemons = tuple(dice.sample(sorted(cluster.scheduler.nodes)[:-LEMONS], LEMONS))
        self.sick: dict[str, str] = {}
        self.struck: list[Struck] = []
        self.doomed = 0  # reruns that will die whatever node they run on
        self._hurts = Deck(HURTS, dice, first=("bus", bus_hang))
        self._nuisances = Deck(MERE_NUISANCES, dice)

    # -- when ------------------------------------------------------------------------------------

    def begin(self) -> None:
        self.cluster.later(FIRST, self._hurt)
        self.cluster.later(self.dice.randint(2 * HOUR, 8 * HOUR), self._disturb)

    def _hurt(self) -> None:
        if self.cluster.run.runs_for() < SETTLED:
            self.cluster.later(20 * MINUTE, self._hurt)
            return
        kind, strike = self._hurts.deal()
        self.strike(kind, strike, self._victim(self.cluster.run.nodes))
        self.cluster.later(self.dice.randint(*BETWEEN), self._hurt)

    def _disturb(self) -> None:
        kind, strike = self._nuisances.deal()
        well = [node for node in self.cluster.run.nodes if node not in self.sick]
        self.strike(kind, strike, self._victim(well))
        self.cluster.later(self.dice.randint(*NUISANCES), self._disturb)

    def strike(self, kind: str, strike: Callable[[Trouble, str], None], node: str) -> None:
        self.struck.append(Struck(self.cluster.now, kind, node))
        strike(self, node)

    def _victim(self, nodes: Sequence[str]) -> str:
        lemons = [node for node in self.lemons if node in nodes]
        return self.dice.choice(lemons if lemons and self.dice.random() < LEMON_SHARE else list(nodes))

    # -- how -------------------------------------------------------------------------------------

    def xid(self, node: str, code: int) -> None:
        self.cluster.record.mark("xid", node, self.cluster.now, code, self.dice.randrange(8))

    def kill_run(self, seconds: int = 20) -> None:
        """The ranks notice at once: as a rule the bot sees both in one look, and the run is dead by then."""
        attempt = self.cluster.run.attempt
        self.cluster.later(seconds, lambda: self._kill(attempt))

    def _kill(self, attempt: str) -> None:
        if attempt and attempt == self.cluster.run.attempt:
            self.cluster.run.die()

    def attempt_began(self, attempt: Attempt) -> None:
        """On a sick node it dies before it has loaded, as most retries of the study did."""
        ill = any(node in self.sick for node in attempt.nodes)
        if ill or self.doomed:
            self.doomed -= 0 if ill else 1
            self.kill_run(self.dice.randint(3 * MINUTE, 8 * MINUTE))

    def repaired(self, node: str) -> None:
        self.sick.pop(node, None)
        self.cluster.record.heal(node, self.cluster.now)
        self.cluster.scheduler.boot(node)


# -- kinds -------------------------------------------------------------------------------------------------------------


def bus_hang(t: Trouble, node: str) -> None:
    """A GPU falls off the bus and the run waits for it for ever."""
    _off_the_bus(t, node)
    t.cluster.run.hang()


def bus_kill(t: Trouble, node: str) -> None:
    """A GPU falls off the bus and takes the run along."""
    _off_the_bus(t, node)
    t.kill_run()


def _off_the_bus(t: Trouble, node: str) -> None:
    t.xid(node, 79)
    t.cluster.record.spell("gpus_lost", node, t.cluster.now + 40)
    t.sick[node] = "a GPU off the bus"


def stubborn(t: Trouble, node: str) -> None:
    """After a bus fault the reruns die too, for reasons of their own: what retrying alone does not cure."""
    bus_kill(t, node)
    t.doomed = t.dice.choice((1, 1, 2, 3))


def uncontained(t: Trouble, node: str) -> None:
    """Memory that cannot be corrected: rows are remapped, Xid 95, the run is dead."""
    t.cluster.record.mark("uncorrectable", node, t.cluster.now, t.dice.randint(1, 3))
    t.xid(node, 95)
    t.kill_run()
    t.sick[node] = "uncontained memory errors"


def contained(t: Trouble, node: str) -> None:
    """Xid 94: one process pays, the node is fine afterwards."""
    t.cluster.record.mark("uncorrectable", node, t.cluster.now, t.dice.randint(1, 2))
    t.xid(node, 94)
    t.kill_run()


def nvlink(t: Trouble, node: str) -> None:
    """Xid 149: alone it says too little to take the node out, but the link is down."""
    t.xid(node, 149)
    t.kill_run(25)
    t.sick[node] = "an NVLink that is down"


def vanished(t: Trouble, node: str) -> None:
    """A GPU is gone and no Xid says so; the run hangs."""
    t.cluster.record.spell("gpus_lost", node, t.cluster.now)
    t.cluster.run.hang()
    t.sick[node] = "a GPU that vanished"


def node_lost(t: Trouble, node: str) -> None:
    """The machine does not answer; the scheduler itself runs the job again."""
    t.cluster.record.spell("silent", node, t.cluster.now)
    t.sick[node] = "a machine that stopped"
    t.cluster.scheduler.lose(node)


def application(t: Trouble, node: str) -> None:
    """The program is to blame: Xid 13 or 31, and no node is any worse for it."""
    t.xid(node, t.dice.choice((13, 31)))
    t.kill_run()


def exporter_down(t: Trouble, node: str) -> None:
    now = t.cluster.now
    t.cluster.record.spell("exporter_down", node, now, now + t.dice.randint(6 * MINUTE, 30 * MINUTE))


def prometheus_blind(t: Trouble, node: str) -> None:
    now = t.cluster.now
    t.cluster.record.spell("blind", EVERYWHERE, now, now + t.dice.randint(5 * MINUTE, 20 * MINUTE))


def remap_growth(t: Trouble, node: str) -> None:
    """Remapped rows add up over hours without a single Xid, and then the GPU is gone (the study's gpu124)."""
    at = t.cluster.now
    for _ in range(t.dice.randint(14, 24)):
        at += t.dice.randint(8 * MINUTE, 20 * MINUTE)
        t.cluster.record.mark("correctable", node, at, t.dice.randint(1, 3))
    t.cluster.at(at + t.dice.randint(HOUR, 5 * HOUR), lambda: _vanish_at_last(t, node))


def _vanish_at_last(t: Trouble, node: str) -> None:
    run = t.cluster.run
    if node in run.nodes and run.runs_for() < SETTLED:
        t.cluster.later(30 * MINUTE, lambda: _vanish_at_last(t, node))
    elif node in run.nodes and node not in t.sick:
        t.strike("vanished", vanished, node)


Kind = tuple[str, Callable[[Trouble, str], None]]
HURTS: tuple[Kind, ...] = (
    ("bus", bus_hang),
    ("bus", bus_kill),
    ("bus", stubborn),
    ("ecc", uncontained),
    ("ecc", contained),
    ("nvlink", nvlink),
    ("vanished", vanished),
    ("node_lost", node_lost),
    ("application", application),
)
MERE_NUISANCES: tuple[Kind, ...] = (
    ("remap_growth", remap_growth),
    ("exporter_down", exporter_down),
    ("prometheus_blind", prometheus_blind),
)
