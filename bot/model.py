"""The words of xidbot as data. No clock, no I/O.

Times are Unix seconds (UTC, int), durations seconds, nodes and jobs the scheduler's own names.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

# -- what the scheduler shows ---------------------------------------------------------------------

HolderKind = Literal["xidbot", "person", "health", "maintenance", "controller"]


@dataclass(frozen=True, slots=True)
class Holder:
    """Who keeps a node from new work, as the scheduler tells it. `tag` is ours only (`412.1`, `r7`)."""

    kind: HolderKind
    by: str
    why: str
    tag: str = ""
    since: int | None = None


@dataclass(frozen=True, slots=True)
class Node:
    """One machine. `state` is the scheduler's spelling, for people; `up` and `open` are what we act on.

    open: takes new work (nobody holds it, it answers, no reboot pending). gpus: expected count, None = unknown.
    """

    name: str
    state: str
    up: bool
    open: bool
    holders: tuple[Holder, ...] = ()
    gpus: int | None = None
    gpus_used: int = 0
    full: bool = False  # no CPU or memory left, whatever its GPUs say
    features: frozenset[str] = frozenset()
    partitions: tuple[str, ...] = ()
    booted: int | None = None

    @property
    def ours(self) -> Holder | None:
        """Our own hold, if the scheduler shows one."""
        return next((h for h in self.holders if h.kind == "xidbot"), None)

    @property
    def others(self) -> tuple[Holder, ...]:
        """Holders who are not us: never overwritten, never lifted."""
        return tuple(h for h in self.holders if h.kind != "xidbot")


FAILED = frozenset({"FAILED", "NODE_FAIL", "OUT_OF_MEMORY", "BOOT_FAIL", "LAUNCH_FAILED"})
RERUN = frozenset({"REQUEUED", "NODE_FAIL", "PREEMPTED"})  # ends after which the scheduler may run it again
ALIVE = frozenset({"RUNNING", "SUSPENDED", "COMPLETING", "STOPPED"})
ENDED = FAILED | RERUN | frozenset({"COMPLETED", "CANCELLED", "TIMEOUT", "DEADLINE", "REVOKED"})

Origin = Literal["auto", "approved", "command", "external", "scheduler", "in_job", "unattributed"]


@dataclass(frozen=True, slots=True)
class Attempt:
    """One run of a session: job and restart ordinal name it, times are only attributes.

    state: the scheduler's base state in capitals; "LOST" when it is gone and nothing tells how it ended.
    """

    job: str
    ordinal: int
    state: str
    nodes: tuple[str, ...] = ()
    start: int | None = None
    end: int | None = None
    exit_code: str = ""
    origin: Origin | None = None

    @property
    def id(self) -> str:
        return f"{self.job}#{self.ordinal}"

    @property
    def alive(self) -> bool:
        return self.state in ALIVE

    @property
    def started(self) -> bool:
        """It really ran: a pending attempt's start is only an estimate."""
        return self.start is not None and self.state != "PENDING"


@dataclass(frozen=True, slots=True)
class Job:
    """The scheduler's record of one job, with every attempt that it or its accounting still knows, in order."""

    id: str
    name: str
    user: str
    state: str
    account: str = ""
    partition: str = ""
    qos: str = ""
    comment: str = ""
    why: str = ""  # the scheduler's reason for the state
    node_count: int = 1
    gpus_per_node: int = 0
    batch: bool = True
    requeue: bool = True
    submit: int = 0
    first_submit: int = 0
    time_limit: int | None = None
    features: frozenset[str] = frozenset()
    reservation: str = ""
    required: tuple[str, ...] = ()
    excluded: tuple[str, ...] = ()
    dependency: str = ""
    begin: int | None = None  # pending, and not before this: its owner's wish, or the scheduler's delay after a requeue
    queued: bool = True  # False: only accounting still knows it, so nothing can be done to it
    attempts: tuple[Attempt, ...] = ()

    @property
    def latest(self) -> Attempt | None:
        return self.attempts[-1] if self.attempts else None


@dataclass(frozen=True, slots=True)
class Reservation:
    """Nodes promised to somebody for a while. `maintenance`: nothing should run on them then."""

    name: str
    nodes: frozenset[str]
    start: int
    end: int
    maintenance: bool = False


@dataclass(frozen=True, slots=True)
class Cluster:
    """The scheduler at one moment. `unknown` lists what could not be read; nothing may be concluded from it."""

    name: str
    at: int
    nodes: Mapping[str, Node]
    jobs: Mapping[str, Job]
    reservations: tuple[Reservation, ...] = ()
    unknown: tuple[str, ...] = ()


# -- evidence -------------------------------------------------------------------------------------

State3 = Literal["good", "bad", "unknown"]
Provenance = Literal["kernel", "claimed"]


@dataclass(frozen=True, slots=True)
class Reading:
    """A signal for one node now. evidence 0..1; unknown neither opens nor resolves anything but `blind`.

    since: when it became bad (within the window looked at), else None. known: the host maps to a node of the
    scheduler; a host that does not can be shown but never acted on. muted: unknown for the phase that its node is in.
    """

    node: str
    signal: str
    state: State3
    evidence: float = 0.0
    value: float | None = None
    since: int | None = None
    hard: bool = False
    provenance: Provenance = "kernel"
    known: bool = True
    text: str = ""
    muted: bool = False


@dataclass(frozen=True, slots=True)
class Mark:
    """Something that a log or another tool tells of a node: the signal's value from `at` to `until`, by the teller's
    own clock. text: in words, with the GPU where it is told. known: the host is a node of the scheduler."""

    at: int
    node: str
    signal: str
    value: float = 1.0
    until: int | None = None  # None = a moment
    text: str = ""
    provenance: Provenance = "kernel"
    known: bool = True


@dataclass(frozen=True, slots=True)
class JobNote:
    """What a job's own log tells of its failure. at: of the line that tells it, else when the log was last written;
    since: when the trouble began, None where no line tells. node, rank: the first to fail, where the log tells them.
    text: for people, with up to 3 lines of the log, one a line."""

    job: str
    at: int
    text: str
    node: str = ""
    rank: int | None = None
    kind: str = ""
    since: int | None = None
    hint: str = ""  # hardware, network, storage, application, scheduler, unknown
    suspects: tuple[str, ...] = ()  # nodes to look at

    @property
    def noted(self) -> str:
        """As it stands in an incident's note: the log's own lines are indented."""
        said, *lines = self.text.splitlines() or [""]
        return "\n".join((said, *(f"\t{line}" for line in lines)))


@dataclass(frozen=True, slots=True)
class AppXid:
    """An Xid that is the application's as a rule, as a kernel log tells it. gpu: its PCI address, else its UUID. uuid:
    where the driver told it."""

    node: str
    gpu: str
    code: int
    at: int
    uuid: str = ""
    provenance: Provenance = "kernel"


@dataclass(frozen=True, slots=True)
class Sighting:
    """The same with the run in which it happened, once per GPU, code and attempt. session: the run's key, for a job
    under nobody's care its own. place: of the node among the attempt's. gpus: of the whole attempt."""

    xid: AppXid
    attempt: str
    session: str
    program: str
    owner: str
    place: int
    gpus: int

    @property
    def id(self) -> str:
        return f"{self.xid.node}/{self.xid.gpu}/{self.xid.code}/{self.session}/{self.attempt}"


@dataclass(frozen=True, slots=True)
class NodeScore:
    """0..1 for a node now, with the readings that made it, strongest first. hard: condemns hardware by itself.

    soft_for: how long (s) the score has stood at or above the soft opening line within the window. sudden: what the
    driver reported is enough for that line, and needs not stand there.
    """

    node: str
    score: float
    hard: bool
    reasons: tuple[Reading, ...] = ()
    soft_for: int = 0
    sudden: bool = False
    known: bool = True


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A completed save. step None = the trainer does not tell. Times None = not told."""

    job: str
    step: int | None
    started: int | None
    completed: int | None


SaveSource = Literal["trainer", "pushed", "directory", "counters"]


@dataclass(frozen=True, slots=True)
class KnownSave:
    """A save of a run with all that is known of it. ended: when it was completed; where only counters tell, when its
    writes ended. completed: somebody told that it is whole. slow: it stalled. sources: who told, the best first.
    number: its own within the run, 0 = none yet. seen: when it was first told. None = not told."""

    started: int | None
    ended: int | None
    step: int | None = None
    bytes: int | None = None
    completed: bool = False
    slow: bool = False
    sources: tuple[SaveSource, ...] = ()
    number: int = 0
    seen: int = 0

    @property
    def at(self) -> int:
        return self.ended or self.started or self.seen

    @property
    def seconds(self) -> int | None:
        return self.ended - self.started if self.started is not None and self.ended is not None else None


@dataclass(frozen=True, slots=True)
class JobSave:
    """What one source tells of a save of a job."""

    job: str
    save: KnownSave


@dataclass(frozen=True, slots=True)
class SaveHistory:
    """The newest saves of a run, oldest first. made: how many numbers were given."""

    session: str
    saves: tuple[KnownSave, ...] = ()
    made: int = 0


# -- storage --------------------------------------------------------------------------------------

Verdict = Literal["client_slots", "server", "node_path", "link", "metadata", "unknown"]
StallRule = Literal["slow_save", "overdue_save", "hang", "slow_load"]
StoragePhase = Literal["quiet", "save", "load", "unknown"]


@dataclass(frozen=True, slots=True)
class Measures:
    """Where storage time goes now. Of a node unless it says otherwise, the median of the busy ones; None = not
    measured. op_mix: operation → share of request time; ceiling: bytes/s at slots × size / RTT."""

    queue_share: float | None = None
    in_flight: float | None = None
    slots: float | None = None  # times connections
    backlog: float | None = None
    rtt: float | None = None  # s
    rtt_usual: float | None = None
    retransmitted: float | None = None  # of requests
    worst_node: str = ""
    worst_rtt: float | None = None
    rate: float | None = None  # bytes/s of all
    rate_usual: float | None = None
    link_use: float | None = None
    op_mix: tuple[tuple[str, float], ...] = ()
    ceiling: float | None = None
    waiting_nodes: int = 0  # nodes on which requests wait and none completes
    nodes: int = 0
    missing: tuple[str, ...] = ()  # what would be needed to tell more


@dataclass(frozen=True, slots=True)
class Burst:
    """A save or a load as the file system's counters show it. end None = under way. slow: it stalled."""

    start: int
    end: int | None
    bytes: float
    nodes: int
    slow: bool = False


@dataclass(frozen=True, slots=True)
class StoragePoint:
    """A minute of a mount, from `at` on. rate: bytes/s of all nodes; queue_share, in_flight: as Measures has them."""

    at: int
    rate: float | None = None
    queue_share: float | None = None
    in_flight: float | None = None


@dataclass(frozen=True, slots=True)
class Stall:
    """A storage event. onset: when the rule became true. node: only where the verdict is node_path. ended: when it was
    over. usual: what a save (or the gap between two) takes, s. beyond: session key → seconds it cost beyond that.
    trace: the mount's last hour, of when it opened or, once it is over, of when it ended."""

    export: str
    rule: StallRule
    verdict: Verdict
    onset: int
    node: str = ""
    usual: int | None = None
    measures: Measures = Measures()
    ended: int | None = None
    beyond: tuple[tuple[str, int], ...] = ()
    trace: tuple[StoragePoint, ...] = ()


@dataclass(frozen=True, slots=True)
class SessionStorage:
    """One run on one mount. stalled: the rule that holds, or empty. onset: of that. beyond: seconds that its last
    stall cost beyond the usual, so far. normal_saves and calm_since: since that stall was over, or since we look.
    cadence: saves come often enough to wait for. saves: newest last."""

    session: str
    phase: StoragePhase
    stalled: StallRule | Literal[""] = ""
    onset: int | None = None
    usual: int | None = None
    beyond: int = 0
    normal_saves: int = 0
    calm_since: int | None = None
    cadence: bool = False
    saves: tuple[Burst, ...] = ()


@dataclass(frozen=True, slots=True)
class StorageView:
    """One mount now. stall: the event that some of its runs are in, or None. known: it could be measured. trace: the
    last hour, while there is a stall and for some minutes after."""

    export: str
    sessions: tuple[SessionStorage, ...]
    stall: Stall | None = None
    known: bool = True
    trace: tuple[StoragePoint, ...] = ()


@dataclass(frozen=True, slots=True)
class Progress:
    """How one attempt gets on, by what all its nodes show together. run: the attempt's id; age: s since it began.
    phase: start, boot, save, load, empty = none. measured: enough was known to tell. moves: the signals that moved
    lately, moved_at: the last of them. idle_since: since when nothing has moved (the look back's begin at the latest),
    told by `by`; None = it moves, is in a phase, or nobody knows. signs: (signal, in words). level: steps a minute or
    tensor activity (level_of `steps`, `activity`), None = not known. straggler: the one node that stands out."""

    run: str
    age: int
    phase: str = ""
    measured: bool = False
    moves: tuple[str, ...] = ()
    moved_at: int | None = None
    idle_since: int | None = None
    by: tuple[str, ...] = ()
    signs: tuple[tuple[str, str], ...] = ()
    level: float | None = None
    level_of: str = ""
    straggler: str = ""
    straggler_why: str = ""


@dataclass(frozen=True, slots=True)
class Pace:
    """What is known of how a run gets on. attempt: for which `moved`, `idle_since` and `slow_since` are true. moved:
    the signals that have moved in it. usual: the learnt level, of what level_of says; learnt: when. pause: the longest
    standstill (s) that it got out of by itself. counts_from: what stood still before that is explained. excused: by
    what, while it is."""

    attempt: str
    moved: tuple[str, ...] = ()
    usual: float | None = None
    level_of: str = ""
    learnt: int | None = None
    pause: int = 0
    counts_from: int = 0
    excused: str = ""
    idle_since: int | None = None
    slow_since: int | None = None


@dataclass(frozen=True, slots=True)
class SourceState:
    """Whether a source could be read this time. `problem` is empty when it could."""

    name: str
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Observation:
    """All that one look sees. `at`: the moment the data is of; `now`: when we looked.

    cluster None: the scheduler could not be read. scores None: the metrics could not.
    """

    at: int
    now: int
    cluster: Cluster | None = None
    scores: Mapping[str, NodeScore] | None = None
    readings: tuple[Reading, ...] = ()
    checkpoints: tuple[Checkpoint, ...] = ()
    sources: tuple[SourceState, ...] = ()
    storage: tuple[StorageView, ...] = ()
    notes: tuple[JobNote, ...] = ()
    progress: tuple[Progress, ...] = ()
    app_xids: tuple[AppXid, ...] = ()
    saves: tuple[JobSave, ...] = ()  # all that the sources tell of saves, also what they told before


# -- what we keep ---------------------------------------------------------------------------------

Mode = Literal["observe", "suggest", "approve", "veto", "auto"]
MODES: tuple[Mode, ...] = ("observe", "suggest", "approve", "veto", "auto")
SessionState = Literal["running", "degraded", "starting", "dead", "ended"]
Kind = Literal[
    "gpu_fault",
    "precursor",
    "checkpoint_stall",
    "session_failed",
    "session_hung",
    "session_slow",
    "blind",
    "storm",
]
Role = Literal["viewer", "operator", "admin"]
ROLES: tuple[Role, ...] = ("viewer", "operator", "admin")


@dataclass(frozen=True, slots=True)
class Session:
    """A training run under our care. key: cluster, first job id, earliest submit known to accounting."""

    key: str
    name: str
    cluster: str
    jobs: tuple[str, ...]
    job_name: str
    user: str
    controller: str
    first_submit: int
    seen: int = 0  # when we first saw it; what ended before that is history
    unrecoverable: str = ""  # why no playbook can requeue it; empty = it can
    gpus: int = 0
    attempts: tuple[Attempt, ...] = ()
    checkpoint: Checkpoint | None = None
    best_step: int | None = None
    interval: int | None = None  # learned seconds between completed saves
    ended: str = ""
    ended_at: int | None = None
    pace: Pace | None = None

    @property
    def latest(self) -> Attempt | None:
        return self.attempts[-1] if self.attempts else None

    def attempt(self, attempt_id: str) -> Attempt | None:
        return next((a for a in self.attempts if a.id == attempt_id), None)

    @property
    def nodes(self) -> tuple[str, ...]:
        """Nodes of the newest attempt that really ran."""
        return next((a.nodes for a in reversed(self.attempts) if a.nodes), ())


@dataclass(frozen=True, slots=True)
class Incident:
    """Something broken: kind + subject. A re-opening within a day is a new episode of the same number."""

    id: int
    episode: int
    kind: Kind
    subject: str
    opened: int
    score: float = 0.0
    hard: bool = False
    known: bool = True
    reasons: tuple[Reading, ...] = ()
    note: str = ""
    hurt: tuple[str, ...] = ()  # session keys
    acked_by: str = ""
    quiet_since: int | None = None
    closed: int | None = None
    closed_why: str = ""
    stall: Stall | None = None  # of a checkpoint_stall

    @property
    def tag(self) -> str:
        return f"{self.id}.{self.episode}"

    @property
    def said(self) -> tuple[str, ...]:
        """The note in our own words, one sentence each."""
        return tuple(line for line in self.note.splitlines() if line.strip() and not line.startswith("\t"))

    @property
    def log(self) -> tuple[str, ...]:
        """Lines of a job's log that the note holds: written by anybody."""
        return tuple(line[1:] for line in self.note.splitlines() if line.startswith("\t"))


@dataclass(frozen=True, slots=True)
class Link:
    """One attempt of a recovery's chain and what came of it; three separate facts."""

    attempt: str
    started: int
    origin: Origin | None = None
    ended: int | None = None
    end_state: str = ""
    failed_why: str = ""
    regained: int | None = None
    verified: bool = False
    step: int | None = None
    survived: int | None = None


ChainClass = Literal["automated", "assisted", "manual", "scheduler", "takeover", "in_job", "mixed", "none"]


@dataclass(frozen=True, slots=True)
class Recovery:
    """From when progress stopped to regained, given up or cancelled; open ones are censored.

    last_step: the best step before the failure; a rerun has regained only beyond it.
    """

    id: str
    incident: int
    episode: int
    session: str
    stopped: int
    failed_attempt: str
    last_step: int | None = None
    chain: tuple[Link, ...] = ()
    regained: int | None = None
    survived: int | None = None
    ended: int | None = None
    outcome: str = ""  # survived, given_up, cancelled, censored, moved (to the incident that explains it)
    why: str = ""
    chain_class: ChainClass | None = None

    @property
    def tag(self) -> str:
        return f"{self.incident}.{self.episode}"


@dataclass(frozen=True, slots=True)
class NodeFact:
    """What an approval takes for granted of one node."""

    name: str
    up: bool
    holders: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Facts:
    """What an approval is bound to: never a score. Checked again at the click and by the actor."""

    session: str
    attempt: str
    owner: str
    controller: str
    nodes: tuple[NodeFact, ...]
    hard: tuple[str, ...]
    checkpoint_step: int | None
    checkpoint_at: int | None
    steps: tuple[str, ...]


ActionEnd = Literal["done", "already", "expired", "superseded", "abandoned", "refused", "failed", "unclear"]


@dataclass(frozen=True, slots=True)
class Action:
    """A change to the world, keyed (cause, step, target, attempt): one key happens once."""

    cause: str  # incident tag, or r<request>
    step: str
    target: str
    attempt: str = ""
    session: str = ""
    plan: str = ""
    origin: Origin = "auto"
    by: str = "xidbot"
    why: str = ""
    review: int | None = None
    wanted: int = 0
    not_before: int = 0
    expires: int | None = None
    started: int | None = None
    argv: tuple[str, ...] = ()
    tries: int = 0
    ended: int | None = None
    end: ActionEnd | None = None
    detail: str = ""

    @property
    def key(self) -> str:
        return ":".join((self.cause, self.step, self.target, self.attempt or "-"))


PlanStatus = Literal["proposed", "approved", "rejected", "expired", "voided", "done", "failed"]


@dataclass(frozen=True, slots=True)
class Plan:
    """Actions that are approved together. due: when it acts by itself (veto, auto), else None."""

    id: str
    incident: int
    episode: int
    playbook: str
    session: str
    mode: Mode
    actions: tuple[Action, ...]
    facts: Facts
    proposed: int
    expires: int | None = None
    due: int | None = None
    status: PlanStatus = "proposed"
    decided: int | None = None
    by: str = ""
    why: str = ""
    fit: str = ""  # what the scheduler's nodes allow, as it was when proposed
    reminded: int = 0

    @property
    def tag(self) -> str:
        return f"{self.incident}.{self.episode}"


@dataclass(frozen=True, slots=True)
class Hold:
    """Our reason to keep a node from new work. review is not a release date: release needs proof."""

    node: str
    tag: str
    why: str
    by: str
    since: int
    review: int | None = None
    released: int | None = None
    proof: str = ""

    @property
    def id(self) -> str:
        return f"{self.node}@{self.tag}"


@dataclass(frozen=True, slots=True)
class Request:
    """What a person asked: a typed command or a click. dedupe: the same words delivered twice are one request."""

    text: str
    user: str  # Slack user id, or os:<name>
    at: int
    source: Literal["slack", "cli"] = "cli"
    dedupe: str = ""
    channel: str = ""
    thread: str = ""
    response_url: str = ""
    id: int = 0
    facts: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Answer:
    """What a person was told, and when."""

    request: int
    user: str
    text: str
    reply: str
    ok: bool
    at: int
    source: str = "cli"


# -- commands to the world ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Argv:
    """A gate verb with its operands."""

    verb: str
    operands: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Done:
    """The world is already as the action wants it. ours: by the action itself, else by somebody else."""

    ours: bool
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Wait:
    """Not yet: ask again (a job is still stopping)."""

    why: str


@dataclass(frozen=True, slots=True)
class Unclear:
    """Nobody can tell from here what to do; a person must look."""

    why: str


Next = Argv | Done | Wait | Unclear


@dataclass(frozen=True, slots=True)
class Report:
    """What the gate said: 0 done, 3 already satisfied, 4 refused, 5 failed, 6 unclear."""

    exit: int
    body: Mapping[str, object]

    @property
    def text(self) -> str:
        return str(self.body.get("reason") or self.body.get("detail") or "")


@dataclass(frozen=True, slots=True)
class Fit:
    """Whether a job could run again without some nodes. `nodes` are those that could take it."""

    ok: bool
    needed: int
    nodes: tuple[str, ...]
    why: str = ""


@dataclass(frozen=True, slots=True)
class SourceHealth:
    """Whether a source (or one node's telemetry, `node:<name>`) can be read, and since when it is so."""

    name: str
    problem: str
    since: int


@dataclass(frozen=True, slots=True)
class Meta:
    """What concerns the bot as a whole. incidents: the highest number given so far."""

    incidents: int = 0
    paused_by: str = ""
    paused_why: str = ""
    version: str = ""
    policy: str = ""
    write_mode: Mode = "observe"
