"""What speaks against a node: readings, what logs and tools tell, and the score made of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

State3 = Literal["good", "bad", "unknown"]
Provenance = Literal["kernel", "claimed"]


@dataclass(frozen=True, slots=True)
class Reading:
    """A signal for one node now. evidence 0..1; unknown neither opens nor resolves anything but `blind`.

    since: when it became bad (within the window looked at), else None. known: the host maps to a node of the
    scheduler; a host that does not can be shown but never acted on. begun: it was not so before `since`, as far as that
    look saw; else it may have been for long. muted: unknown for the phase that its node is in.
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
    begun: bool = True
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
