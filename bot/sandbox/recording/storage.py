"""Saves that the storage holds up, as levels of the NFS client: operations a second, round trip, time in the queue. The
same bytes are written as ever, it only takes longer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from bot.backtest_files import StorageLabel
from bot.sandbox.recording.effects import How
from bot.sandbox.recording.fleet import MINUTE
from bot.sandbox.recording.story import Story
from bot.sandbox.recording.truth import Verdict

OPERATIONS = ("READ", "WRITE", "GETATTR", "LOOKUP", "OPEN", "COMMIT")
METADATA = ("GETATTR", "LOOKUP", "OPEN")
SLOTS = 128  # of the transport: the default of NFS over RDMA, advised for TCP by NetApp
WRITES, ROUND_TRIP, SIZE = 640.0, 0.05, 2.0**20  # a second, seconds and bytes of a node in a save (levels.NFS)
DEGRADED = 1.25e8  # bytes/s: a port that came up at 1 Gbit/s


@dataclass(frozen=True, slots=True)
class Held:
    """share: of the usual rate."""

    story: Story
    nodes: tuple[int, ...]
    start: int
    usual: int
    end: int

    @property
    def share(self) -> float:
        return self.usual / (self.end - self.start)

    def level(self, what: str, how: How, value: float, nodes: Sequence[int] | None = None) -> None:
        there = self.nodes if nodes is None else nodes
        self.story.effects.change(f"nfs/{what}", there, self.start, self.end, how, value)


def stall(story: Story, nodes: tuple[int, ...], at: int, lasts: int) -> int:
    """The save that begins at `at` and usually lasts so long takes longer. Returns how long."""
    verdict = story.dice.choice(tuple(SHAPES))
    slower = WRITES * SIZE / (0.97 * DEGRADED) if verdict == "link" else story.dice.uniform(2.6, 8)
    longer = max(round(lasts * slower), lasts + 5 * MINUTE)
    node = SHAPES[verdict](Held(story, nodes, at, lasts, at + longer))
    story.stalls.append(StorageLabel(at, at + longer, verdict, node))
    return longer


def _client_slots(held: Held) -> str:
    """Small writes fill all slots: the round trip is as ever, the queue is not (93 % of the time in the study)."""
    often = SLOTS / ROUND_TRIP
    held.level("ops/WRITE", "set", often)
    held.level("size/WRITE", "set", WRITES * SIZE * held.share / often)
    held.level("queue/WRITE", "set", held.story.dice.uniform(0.6, 1.8))
    return ""


def _server(held: Held) -> str:
    """Everything takes longer on the other side, for all; or it does not answer at all for a while."""
    story = held.story
    if story.dice.random() < 0.3:
        hang = held.start + MINUTE, held.end - held.usual + MINUTE
        for operation in OPERATIONS:
            story.effects.change(f"nfs/ops/{operation}", held.nodes, *hang, "scale", 0.0)
        story.effects.change("nfs/waiting", held.nodes, *hang, "set", story.dice.randint(8, SLOTS))
        return ""
    later = story.dice.uniform(2, 4) / held.share
    for operation in OPERATIONS:
        held.level(f"rtt/{operation}", "scale", later)
    held.level("ops/WRITE", "scale", held.share)
    return ""


def _node_path(held: Held) -> str:
    """One node's way to the storage loses packets; the others are done and wait."""
    dice = held.story.dice
    node, later = dice.choice(held.nodes), dice.uniform(2, 4) / held.share
    for operation in OPERATIONS:
        held.level(f"rtt/{operation}", "scale", later, [node])
    held.level("ops/WRITE", "scale", held.share, [node])
    held.level("again", "set", dice.uniform(0.012, 0.06), [node])
    others = [other for other in held.nodes if other != node]
    held.story.effects.change("nfs/ops/WRITE", others, held.start + held.usual, held.end, "scale", 0.002)
    return held.story.fleet.names[node]


def _link(held: Held) -> str:
    """The storage ports have come up at a lower speed and are full."""
    dice = held.story.dice
    held.story.effects.change("node_network_speed_bytes", held.nodes, held.start - 600, held.end, "set", DEGRADED)
    held.level("ops/WRITE", "scale", held.share)
    held.level("rtt/WRITE", "scale", dice.uniform(1.5, 3) / held.share)
    held.level("queue/WRITE", "add", dice.uniform(0.1, 0.5))
    return ""


def _metadata(held: Held) -> str:
    """A storm of small questions about files, from some nodes or all."""
    dice = held.story.dice
    asking = held.nodes if dice.random() < 0.5 else dice.sample(held.nodes, max(1, len(held.nodes) // 8))
    many, later = dice.uniform(60, 250), dice.uniform(4, 12)
    for operation in METADATA:
        held.level(f"ops/{operation}", "scale", many, asking)
        held.level(f"rtt/{operation}", "scale", later)
    held.level("ops/WRITE", "scale", held.share)
    return ""


def _unknown(held: Held) -> str:
    """Requests queue in the client though slots are free and answers come as ever."""
    held.level("ops/WRITE", "scale", held.share)
    held.level("queue/WRITE", "set", held.story.dice.uniform(1, 4))
    return ""


SHAPES: Mapping[Verdict, Callable[[Held], str]] = {
    "client_slots": _client_slots,
    "server": _server,
    "node_path": _node_path,
    "link": _link,
    "metadata": _metadata,
    "unknown": _unknown,
}
