"""A small scheduler of our own behind the same port: for the demo, the tests and the replay. Its clock is turned by
hand; a requeued job starts again after `restart_delay`, a lost node's job is requeued, as Slurm does it."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace

from bot.errors import Unreachable
from bot.model import Action, Argv, Attempt, Cluster, Holder, Job, Next, Node, Report, Reservation
from bot.schedulers.commands import next_command


@dataclass
class SimulatedScheduler:
    """Nodes and jobs by name. `broken` makes every look fail, as a hanging controller does."""

    name: str = "simcl"
    gpus: int = 8
    restart_delay: int = 30
    now: int = 0
    nodes: dict[str, Node] = field(default_factory=dict)
    jobs: dict[str, Job] = field(default_factory=dict)
    ready: dict[str, int] = field(default_factory=dict)
    reservations: list[Reservation] = field(default_factory=list)
    broken: str = ""

    def add_nodes(self, names: Collection[str], partition: str = "train") -> None:
        for name in names:
            self.nodes[name] = Node(name, "IDLE", True, True, gpus=self.gpus, partitions=(partition,))

    # -- the port --------------------------------------------------------------------------------

    def snapshot(self, now: int, watch: Collection[str] = ()) -> Cluster:
        if self.broken:
            raise Unreachable("scheduler", self.broken)
        return Cluster(self.name, now, dict(self.nodes), dict(self.jobs), tuple(self.reservations))

    def next_command(self, action: Action, cluster: Cluster) -> Next:
        return next_command(action, cluster)

    # -- what users and hardware do --------------------------------------------------------------

    def submit(self, job: str, nodes: int, **facts: object) -> None:
        record = Job(
            id=job,
            name="train",
            user="trainer",
            state="PENDING",
            partition="train",
            qos="pretrain",
            node_count=nodes,
            gpus_per_node=self.gpus,
            submit=self.now,
            first_submit=self.now,
            attempts=(Attempt(job, 0, "PENDING"),),
        )
        self.jobs[job] = replace(record, **facts)  # type: ignore[arg-type]
        self.ready[job] = self.now
        self.turn(self.now)

    def turn(self, now: int) -> None:
        """Start what can start by `now`, the longest waiting first."""
        self.now = now
        for job in [j for j in self.jobs.values() if j.state == "PENDING"]:
            if self.ready.get(job.id, now) <= now:
                able = self._able(job)
                if len(able) >= job.node_count:
                    self._begin(job, tuple(sorted(able[: job.node_count])))

    def _able(self, job: Job) -> list[str]:
        """Nodes with room for the job, the fullest first, so that small jobs share a node and leave others whole."""
        room = {
            n.name: (n.gpus or 0) - n.gpus_used
            for n in self.nodes.values()
            if n.up and n.open and n.name not in job.excluded
        }
        return sorted((n for n, free in room.items() if free >= job.gpus_per_node), key=lambda n: (room[n], n))

    def _begin(self, job: Job, nodes: tuple[str, ...]) -> None:
        self._set(replace(job, why="", begin=None), "RUNNING", nodes=nodes, start=self.now)
        for name in nodes:
            self._use(name, job.gpus_per_node)

    def end(self, job: str, state: str, exit_code: str = "") -> None:
        """The run ends: COMPLETED, FAILED, CANCELLED, …"""
        self._free(self.jobs[job])
        self._set(self.jobs[job], state, end=self.now, exit_code=exit_code)

    def forget(self, job: str) -> None:
        """Long ended: neither the queue nor accounting tells of it any more."""
        del self.jobs[job]
        self.ready.pop(job, None)

    def requeue(self, job: str, state: str = "REQUEUED", delay: int | None = None) -> None:
        """The present run ends and the next one waits."""
        record = self.jobs[job]
        latest = record.attempts[-1]
        self._free(record)
        if latest.alive:
            self._set(record, state, end=self.now)
        delay = self.restart_delay if delay is None else delay
        after = Attempt(job, latest.ordinal + 1, "PENDING")
        self.jobs[job] = replace(
            self.jobs[job],
            state="PENDING",
            why="BeginTime" if delay else "Resources",
            begin=self.now + delay if delay else None,
            submit=self.now,
            attempts=(*self.jobs[job].attempts, after),
        )
        self.ready[job] = self.now + delay

    def lose(self, node: str) -> None:
        """The node stops answering: its jobs are requeued by the scheduler itself."""
        self.nodes[node] = replace(self.nodes[node], up=False, open=False, state="DOWN")
        for job in [j for j in self.jobs.values() if j.attempts[-1].alive and node in j.attempts[-1].nodes]:
            if job.requeue:
                self.requeue(job.id, "NODE_FAIL")
            else:
                self.end(job.id, "NODE_FAIL")

    def hold(self, node: str, holder: Holder) -> None:
        record = self.nodes[node]
        self.nodes[node] = self._named(replace(record, open=False, holders=(holder,)))

    def unhold(self, node: str) -> None:
        """Nobody's reason any more; a node that is down stays down."""
        record = self.nodes[node]
        self.nodes[node] = self._named(replace(record, open=record.up, holders=()))

    def release(self, node: str) -> None:
        """A person sets it to RESUME: up and open, whatever it was."""
        self.nodes[node] = self._named(replace(self.nodes[node], up=True, open=True, holders=()))

    def boot(self, node: str) -> None:
        self.nodes[node] = replace(self.nodes[node], booted=self.now)

    def _set(self, job: Job, state: str, **facts: object) -> None:
        latest = replace(job.attempts[-1], state=state, **facts)  # type: ignore[arg-type]
        self.jobs[job.id] = replace(job, state=state, attempts=(*job.attempts[:-1], latest))

    def _free(self, job: Job) -> None:
        for name in job.attempts[-1].nodes if job.attempts[-1].alive else ():
            self._use(name, -job.gpus_per_node)

    def _use(self, node: str, gpus: int) -> None:
        record = self.nodes[node]
        self.nodes[node] = self._named(replace(record, gpus_used=record.gpus_used + gpus))

    @staticmethod
    def _named(node: Node) -> Node:
        """The state as Slurm spells it."""
        full = node.gpus_used >= (node.gpus or 0)
        work = ("ALLOCATED" if full else "MIXED") if node.gpus_used else "IDLE"
        base = work if node.up else "DOWN"
        return replace(node, state=f"{base}+DRAIN" if node.holders else base)


@dataclass
class SimulatedGate:
    """The gate for the simulation, in process. One key runs once; `refuse` is what its caps say."""

    scheduler: SimulatedScheduler
    refuse: str = ""
    paused: bool = False
    done: dict[str, Report] = field(default_factory=dict)
    calls: list[tuple[Argv, str]] = field(default_factory=list)
    before: Callable[[Argv], None] | None = None

    def run(self, argv: Argv, key: str) -> Report:
        self.calls.append((argv, key))
        if self.before:
            self.before(argv)
        if key in self.done:
            return Report(3, {"detail": "this key was carried out before", "ours": True})
        report = self._run(argv)
        if report.exit == 0:
            self.done[key] = report
        return report

    def _run(self, argv: Argv) -> Report:
        if argv.verb in ("pause", "resume"):
            self.paused = argv.verb == "pause"
            return Report(0, {"detail": argv.verb})
        if self.paused or self.refuse:
            return Report(4, {"reason": self.refuse or "paused"})
        return {"hold-node": self._hold, "release-own": self._release, "requeue": self._requeue}[argv.verb](argv)

    def _hold(self, argv: Argv) -> Report:
        node, reason = argv.operands[0], argv.operands[2]
        record = self.scheduler.nodes[node]
        if record.others:
            return Report(3, {"detail": f"held by {record.others[0].by}", "ours": False})
        tag, _, why = reason.removeprefix("xidbot:").partition(" ")
        if record.ours:
            return Report(3, {"detail": f"{node} is held as {record.ours.tag}", "ours": record.ours.tag == tag})
        self.scheduler.hold(node, Holder("xidbot", "xidbot-gate", why, tag, self.scheduler.now))
        return Report(0, {"detail": f"{node} drained"})

    def _release(self, argv: Argv) -> Report:
        node = argv.operands[0]
        if self.scheduler.nodes[node].ours is None:
            return Report(3, {"detail": f"{node} is not held by us", "ours": False})
        self.scheduler.unhold(node)
        return Report(0, {"detail": f"{node} is released"})

    def _requeue(self, argv: Argv) -> Report:
        job, restarts = argv.operands[0], int(argv.operands[2])
        if self.scheduler.jobs[job].attempts[-1].ordinal > restarts:
            return Report(3, {"detail": "already requeued by somebody else", "ours": False})
        self.scheduler.requeue(job, delay=0)
        return Report(0, {"detail": f"job {job} requeued"})
