"""Who writes a job's log: ranks, tasks and the nodes they run on, as the lines themselves tell. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass

from bot.signals import job_kinds as k

MOST_RANKS = 1 << 17  # the largest runs told of have 100,000 GPUs; a garbled line must not fill the memory


@dataclass(frozen=True, slots=True)
class Speaker:
    """Who wrote a line, as its prefixes tell. task: srun's label."""

    rank: int | None
    task: int | None
    local: int | None
    node: str | None


class Crew:
    """Learned line by line. nodes: the job's, to know a host's name by. world: ranks of the job as its scheduler has
    it, which the log's own word replaces.

    ranks: all that ever spoke. counters: (group, rank) → works that its NCCL watchdog counted as enqueued, completed.
    """

    def __init__(self, nodes: Collection[str] = (), world: int | None = None) -> None:
        self.world = world
        self.ranks: set[int] = set()
        self.counters: dict[tuple[str, int], tuple[int, int]] = {}
        self.torchrun = False
        self._world = 0
        self._nodes = {node.casefold(): node for node in nodes}
        self._rank_node: dict[int, str] = {}
        self._members: dict[int, str] = {}
        self._members_of = 0
        self._task_node: dict[int, str] = {}

    def node_of(self, rank: int | None) -> str | None:
        """Where a rank ran, as lines tell."""
        if rank is None:
            return None
        return self._rank_node.get(rank) or self._members.get(rank) or self._by_task(rank)

    def _by_task(self, task: int | None) -> str | None:
        """srun's tasks are the ranks unless torchrun stands between."""
        return None if task is None or self.torchrun else self._task_node.get(task)

    def node_of_task(self, task: int | None) -> str | None:
        return None if task is None else self._task_node.get(task)

    def seen(self) -> set[str]:
        """All nodes on which a rank is known to have run."""
        return {*self._rank_node.values(), *self._members.values(), *self._task_node.values()}

    def ran(self, rank: int, node: str) -> None:
        self._rank_node[rank] = node

    def speaker(self, text: str, task: int | None) -> Speaker:
        rank = next((int(found["rank"]) for form in k.RANKS if (found := form.search(text))), None)
        local = k.LOCAL.match(text)
        host = k.NCCL.search(text) or k.STEPD.search(text)
        first = text.split(":", 1)[0].strip()  # pdsh and DeepSpeed write `node: ` before each line
        node = self.name(host["host"]) if host else self._nodes.get(first.casefold())
        gpu = int(host["local"]) if host and "local" in host.groupdict() else None
        return Speaker(rank, task, int(local["local"]) if local else gpu, node)

    def name(self, host: str) -> str:
        """The scheduler's spelling of a host, where it is a node of the job."""
        low = host.casefold()
        return self._nodes.get(low) or self._nodes.get(low.split(".")[0]) or host

    def learn(self, text: str, who: Speaker) -> None:
        if who.rank is not None and who.rank < MOST_RANKS:
            self.ranks.add(who.rank)
        if "elastic" in text or "torchrun" in text:
            self.torchrun = True
        if (member := k.MEMBER.search(text)) and who.node:
            self._learn_member(int(member["rank"]), int(member["world"]), who.node)
        elif who.rank is not None and who.node:
            self._rank_node.setdefault(who.rank, who.node)
        if world := k.WORLD.search(text):
            self._grow(int(world["world"]))
        counters, group = k.BACKGROUND.search(text), k.GROUP.search(text)
        if counters and who.rank is not None and len(self.counters) < MOST_RANKS:
            key = (group["group"] if group else "", who.rank)
            self.counters.setdefault(key, (int(counters["enqueued"]), int(counters["completed"])))

    def _grow(self, world: int) -> None:
        self._world = self.world = min(MOST_RANKS, max(self._world, world))

    def _learn_member(self, rank: int, world: int, node: str) -> None:
        """Ranks of the largest communicator are the job's; in a smaller one they count anew."""
        if world > self._members_of:
            self._members, self._members_of = {}, world
            self._grow(world)
        if world == self._members_of:
            self._members[rank] = node

    def srun(self, hosts: str, tasks: str) -> tuple[str | None, int | None]:
        """(the node, the task) where it is one of each."""
        mine = numbers(tasks)
        if "[" in hosts or "," in hosts:
            return None, None
        node = self.name(hosts)
        self._task_node.update(dict.fromkeys(mine, node))
        return node, (mine[0] if len(mine) == 1 and not self.torchrun else None)

    def named(self, body: str) -> str | None:
        """The node that a line names: by a key, or the only one of the job's."""
        if keyed := k.NODE.search(body):
            return self.name(keyed["host"])
        words = {w.casefold() for w in re.findall(r"[A-Za-z][\w-]*", body)} if self._nodes else set()
        mine = [self._nodes[word] for word in words if word in self._nodes]
        return mine[0] if len(mine) == 1 else None


def numbers(text: str) -> list[int]:
    """`0-3,7` or `0, 1`: at most 1024 of them."""
    found: list[int] = []
    for part in re.findall(r"\d{1,12}(?:-\d{1,12})?", text):
        low, _, high = part.partition("-")
        found += range(int(low), min(int(high or low), int(low) + 1024) + 1)
    return found[:1024]
