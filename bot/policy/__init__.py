"""Policy: numbers, signals, playbooks and session rules, merged from the shipped files and one site file."""

from bot.policy.figures import (
    ApprovalNumbers,
    Caps,
    IncidentNumbers,
    Numbers,
    PhaseNumbers,
    ProgressNumbers,
    RecoveryNumbers,
    RepeatNumbers,
    ScoreNumbers,
    Time,
)
from bot.policy.merge import build, numbers, shipped, signals
from bot.policy.playbook import Playbook, Step, When
from bot.policy.policy import Policy
from bot.policy.session_rule import PATH_FIELDS, CheckpointGauges, CheckpointRule, Match, PathPattern, SessionRule
from bot.policy.signal import Category, Evidence, Phase, Signal, XidAction

__all__ = [
    "ApprovalNumbers",
    "Caps",
    "Category",
    "CheckpointGauges",
    "CheckpointRule",
    "Evidence",
    "IncidentNumbers",
    "Match",
    "Numbers",
    "PATH_FIELDS",
    "PathPattern",
    "Phase",
    "PhaseNumbers",
    "Playbook",
    "Policy",
    "ProgressNumbers",
    "RecoveryNumbers",
    "RepeatNumbers",
    "ScoreNumbers",
    "SessionRule",
    "Signal",
    "Step",
    "Time",
    "When",
    "XidAction",
    "build",
    "numbers",
    "shipped",
    "signals",
]
