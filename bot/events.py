"""What happened, in the past tense: the log is made of these and nothing else.

Each has `at` (Unix seconds, the decision's time). `VERSION` rises when a field changes meaning; store/codec upgrades
old ones.
"""

from __future__ import annotations

from dataclasses import dataclass

from bot.model import (
    Action,
    ActionEnd,
    Answer,
    Attempt,
    ChainClass,
    Checkpoint,
    Hold,
    Incident,
    KnownSave,
    Link,
    Mode,
    Origin,
    Pace,
    Plan,
    PlanStatus,
    Reading,
    Recovery,
    Session,
    Sighting,
    SourceHealth,
    Stall,
)

VERSION = 1


@dataclass(frozen=True, slots=True)
class Event:
    at: int


@dataclass(frozen=True, slots=True)
class Started(Event):
    """The bot began with this policy. Decisions until the next one carry its hash."""

    version: str
    policy: str
    write_mode: Mode


@dataclass(frozen=True, slots=True)
class SessionSeen(Event):
    session: Session


@dataclass(frozen=True, slots=True)
class AttemptSeen(Event):
    """New, or changed in state, nodes or end."""

    session: str
    attempt: Attempt


@dataclass(frozen=True, slots=True)
class AttemptAttributed(Event):
    session: str
    attempt: str
    origin: Origin


@dataclass(frozen=True, slots=True)
class SessionEnded(Event):
    session: str
    how: str


@dataclass(frozen=True, slots=True)
class CheckpointSeen(Event):
    session: str
    checkpoint: Checkpoint


@dataclass(frozen=True, slots=True)
class SaveSeen(Event):
    """A save became known, or known better. gone: numbers of others that turned out to be the same one. kept: how many
    of the run's newest saves its history holds from now on."""

    session: str
    save: KnownSave
    kept: int
    gone: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class PaceChanged(Event):
    """A run began to stand still or to be slow, moves again, or its usual level is known better."""

    session: str
    pace: Pace


@dataclass(frozen=True, slots=True)
class ReadingChanged(Event):
    reading: Reading
    policy: str


@dataclass(frozen=True, slots=True)
class AppXidSeen(Event):
    """The first of its code on this GPU in this attempt."""

    sighting: Sighting


@dataclass(frozen=True, slots=True)
class SourceChanged(Event):
    source: SourceHealth


@dataclass(frozen=True, slots=True)
class IncidentOpened(Event):
    incident: Incident
    policy: str


@dataclass(frozen=True, slots=True)
class IncidentChanged(Event):
    """The same incident, looked at again and found different in something a person would care about."""

    incident: int
    episode: int
    score: float
    hard: bool
    reasons: tuple[Reading, ...]
    hurt: tuple[str, ...]
    note: str = ""


@dataclass(frozen=True, slots=True)
class StallChanged(Event):
    """A storage event is known better, hurts more runs, or is over (stall.ended)."""

    incident: int
    episode: int
    stall: Stall
    hurt: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class IncidentQuieted(Event):
    """since: when its cause went quiet; None = it is back."""

    incident: int
    episode: int
    since: int | None


@dataclass(frozen=True, slots=True)
class IncidentFaded(Event):
    """since: when its evidence was shown last, be it good or unknown now; None = it is back."""

    incident: int
    episode: int
    since: int | None


@dataclass(frozen=True, slots=True)
class IncidentAcknowledged(Event):
    incident: int
    episode: int
    by: str


@dataclass(frozen=True, slots=True)
class IncidentClosed(Event):
    incident: int
    episode: int
    why: str


@dataclass(frozen=True, slots=True)
class RecoveryStarted(Event):
    recovery: Recovery


@dataclass(frozen=True, slots=True)
class RecoveryMeasured(Event):
    """The best step before the failure became known better: a save of the old attempt was seen late."""

    recovery: str
    last_step: int


@dataclass(frozen=True, slots=True)
class LinkChanged(Event):
    """An attempt joined a chain, or one of its facts became known."""

    recovery: str
    link: Link


@dataclass(frozen=True, slots=True)
class RecoveryEnded(Event):
    recovery: str
    outcome: str
    why: str
    chain_class: ChainClass


@dataclass(frozen=True, slots=True)
class PlanProposed(Event):
    plan: Plan
    policy: str


@dataclass(frozen=True, slots=True)
class PlanDecided(Event):
    plan: str
    status: PlanStatus
    by: str
    why: str = ""


@dataclass(frozen=True, slots=True)
class PlanReminded(Event):
    plan: str
    who: str


@dataclass(frozen=True, slots=True)
class ActionWanted(Event):
    action: Action
    policy: str


@dataclass(frozen=True, slots=True)
class ActionStarted(Event):
    """Intent before act: written before the gate is called."""

    key: str
    argv: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ActionEnded(Event):
    key: str
    end: ActionEnd
    detail: str = ""


@dataclass(frozen=True, slots=True)
class ActionWithheld(Event):
    """What would have been done, and what stopped it."""

    incident: int
    episode: int
    step: str
    target: str
    by: str  # mode or guard
    why: str


@dataclass(frozen=True, slots=True)
class NodeHeld(Event):
    hold: Hold


@dataclass(frozen=True, slots=True)
class NodeReleased(Event):
    hold: str
    by: str
    proof: str


@dataclass(frozen=True, slots=True)
class Paused(Event):
    by: str
    why: str


@dataclass(frozen=True, slots=True)
class Resumed(Event):
    by: str


@dataclass(frozen=True, slots=True)
class RequestAnswered(Event):
    answer: Answer


@dataclass(frozen=True, slots=True)
class DigestPosted(Event):
    """A calendar week's digest is to stand in the channel (`2026-W48`). late: the bot was down when it was due."""

    week: str
    late: bool


EVENTS: dict[str, type[Event]] = {cls.__name__: cls for cls in Event.__subclasses__()}
