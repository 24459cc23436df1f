"""What people can type. The table holds strings only, so that help loads nothing but click."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Role = Literal["viewer", "operator", "admin"]


@dataclass(frozen=True, slots=True)
class Command:
    """One command. run: `module:function` taking (Asked) and giving a Reply. slack: how it is typed there."""

    name: str
    role: Role
    usage: str
    example: str
    help: str
    run: str
    slack: str = "/xid"


COMMANDS: tuple[Command, ...] = (
    Command(
        "retry",
        "operator",
        "retry SESSION",
        "retry session-123",
        "Requeue a run now. Typing it is the approval.",
        "commands.actions:retry",
        "/retry",
    ),
    Command(
        "exclude",
        "operator",
        "exclude NODE[,NODE…] [for 24h] [REASON]",
        "exclude node-17 for 24h Xid 79 twice",
        "Keep a node from new work (drain). `for` sets the review date; release needs proof.",
        "commands.actions:exclude",
        "/exclude",
    ),
    Command(
        "readmit",
        "admin",
        "readmit NODE REASON",
        "readmit node-17 GPU 3 replaced, dcgmi diag passed",
        "Give back a node that xidbot holds. The reason is recorded as proof by statement.",
        "commands.actions:readmit",
    ),
    Command(
        "incidents",
        "viewer",
        "incidents [NUMBER]",
        "incidents",
        "Open incidents, or all that is known of one.",
        "commands.looks:incidents",
    ),
    Command(
        "why",
        "viewer",
        "why SESSION|NODE|INCIDENT",
        "why session-123",
        "Which stage is missing: seen, signal, decision, guard, next.",
        "commands.why:why",
    ),
    Command(
        "checkpoints",
        "viewer",
        "checkpoints SESSION",
        "checkpoints session-123",
        "A run's last saves: when, how large, how long, whether whole, by whose word; with a chart.",
        "commands.checkpoints:checkpoints",
    ),
    Command(
        "approve",
        "operator",
        "approve INCIDENT|PLAN",
        "approve 412",
        "Approve the plan that waits.",
        "commands.decisions:approve",
    ),
    Command(
        "reject",
        "operator",
        "reject INCIDENT|PLAN [REASON]",
        "reject 412 known bad sensor",
        "Reject the plan that waits; nothing is done.",
        "commands.decisions:reject",
    ),
    Command(
        "ack",
        "operator",
        "ack INCIDENT",
        "ack 412",
        "I have seen it: stops reminders, changes nothing else.",
        "commands.decisions:acknowledge",
    ),
    Command(
        "digest",
        "operator",
        "digest [WEEK]",
        "digest 2026-W48",
        "Have a week's digest posted in the channel; the last whole week if none is named.",
        "commands.digest:post",
    ),
    Command(
        "pause",
        "operator",
        "pause [REASON]",
        "pause maintenance of the fabric",
        "Stop every write, at the gate too. Detection goes on.",
        "commands.actions:pause",
    ),
    Command(
        "resume",
        "admin",
        "resume",
        "resume",
        "End the pause.",
        "commands.actions:resume",
    ),
    Command(
        "help",
        "viewer",
        "help [COMMAND]",
        "help exclude",
        "This table.",
        "commands.looks:show_help",
    ),
)
BY_NAME = {command.name: command for command in COMMANDS}
