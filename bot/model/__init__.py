"""The words of xidbot as data. No clock, no I/O.

Times are Unix seconds (UTC, int), durations seconds, nodes and jobs the scheduler's own names.
"""

from bot.model.command import Argv, Done, Fit, Next, Report, Unclear, Wait
from bot.model.evidence import AppXid, JobNote, Mark, NodeScore, Provenance, Reading, Sighting, State3
from bot.model.incident import Incident, Kind
from bot.model.meta import Meta
from bot.model.observation import Observation, SourceHealth, SourceState
from bot.model.plan import MODES, Action, ActionEnd, Facts, Hold, Mode, NodeFact, Plan, PlanStatus
from bot.model.progress import LogGrowth, Pace, Progress
from bot.model.recovery import ChainClass, Link, Recovery
from bot.model.request import ROLES, Answer, Request, Role
from bot.model.saves import Checkpoint, JobSave, KnownSave, SaveHistory, SaveSource
from bot.model.scheduler import (
    ALIVE,
    ENDED,
    FAILED,
    RERUN,
    Attempt,
    Cluster,
    Holder,
    HolderKind,
    Job,
    Node,
    Origin,
    Reservation,
)
from bot.model.session import Session, SessionState
from bot.model.storage import (
    Burst,
    Measures,
    SessionStorage,
    Stall,
    StallRule,
    StoragePhase,
    StoragePoint,
    StorageView,
    Verdict,
)

__all__ = [
    "ALIVE",
    "Action",
    "ActionEnd",
    "Answer",
    "AppXid",
    "Argv",
    "Attempt",
    "Burst",
    "ChainClass",
    "Checkpoint",
    "Cluster",
    "Done",
    "ENDED",
    "FAILED",
    "Facts",
    "Fit",
    "Hold",
    "Holder",
    "HolderKind",
    "Incident",
    "Job",
    "JobNote",
    "JobSave",
    "Kind",
    "KnownSave",
    "Link",
    "LogGrowth",
    "MODES",
    "Mark",
    "Measures",
    "Meta",
    "Mode",
    "Next",
    "Node",
    "NodeFact",
    "NodeScore",
    "Observation",
    "Origin",
    "Pace",
    "Plan",
    "PlanStatus",
    "Progress",
    "Provenance",
    "RERUN",
    "ROLES",
    "Reading",
    "Recovery",
    "Report",
    "Request",
    "Reservation",
    "Role",
    "SaveHistory",
    "SaveSource",
    "Session",
    "SessionState",
    "SessionStorage",
    "Sighting",
    "SourceHealth",
    "SourceState",
    "Stall",
    "StallRule",
    "State3",
    "StoragePhase",
    "StoragePoint",
    "StorageView",
    "Unclear",
    "Verdict",
    "Wait",
]
