"""`scontrol show node`: what state a node is in and who holds it."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

from bot.errors import BadReply
from bot.model import Holder, HolderKind, Node
from bot.slurm_records.values import SOURCE, short, text_time, words

TAG = re.compile(r"xidbot:([0-9]+\.[0-9]+|r[0-9]+) ")
_SUFFIX = {
    "*": "NOT_RESPONDING",
    "~": "POWERED_DOWN",
    "#": "POWERING_UP",
    "!": "POWER_DOWN",
    "%": "POWERING_DOWN",
    "$": "MAINTENANCE",
    "@": "REBOOT_REQUESTED",
    "^": "REBOOT_ISSUED",
    "-": "PLANNED",
}
_SHORT_STATES = {
    "ALLOC": "ALLOCATED",
    "COMP": "COMPLETING",
    "DRAINED": "IDLE+DRAIN",
    "DRAINING": "ALLOCATED+DRAIN",
    "DRNG": "ALLOCATED+DRAIN",
    "FAILG": "ALLOCATED+FAIL",
    "FAILING": "ALLOCATED+FAIL",
    "FUTR": "FUTURE",
    "INVAL": "INVALID_REG",
    "MAINT": "MAINTENANCE",
    "MIX": "MIXED",
    "PLND": "PLANNED",
    "POWER": "POWERED_DOWN",
    "REBOOT": "REBOOT_ISSUED",
    "RESV": "RESERVED",
    "UNK": "UNKNOWN",
}

# fmt: off
_TAKES_WORK = frozenset({
    "IDLE", "ALLOCATED", "MIXED", "COMPLETING", "CLOUD", "DYNAMIC_NORM", "RESERVED", "PLANNED", "CANCEL_REBOOT",
})
_STANDS = frozenset({
    "IDLE", "ALLOCATED", "MIXED", "COMPLETING", "RESERVED", "PLANNED", "MAINTENANCE", "DRAIN", "FAIL",
})
_AWAY = frozenset({
    "DOWN", "ERROR", "UNKNOWN", "FUTURE", "DYNAMIC_FUTURE", "NOT_RESPONDING", "REBOOT_ISSUED", "INVALID_REG", "BOOT",
    "POWERED_DOWN", "POWER_DOWN", "POWERING_DOWN", "POWERING_UP", "POWER_UP", "POW_DN", "POW_UP",
})

# fmt: on

# How health checkers and Slurm itself begin their reasons; anything else that drains a node is a person.
_HEALTH = (
    "NHC:",
    "NHC ",
    "Kill task failed",
    "Prolog error",
    "Epilog error",
    "health_check",
    "HealthCheck",
    "[node_problem]",
    "[user_problem]",
    "k8s:",
    "[J] [NVSentinel]",
    "slurm-operator:",
)
_CONTROLLER = (
    "Not responding",
    "Node unexpectedly rebooted",
    "Low RealMemory",
    "Low CPUs",
    "Low socket",
    "Low Cores",
    "Low TmpDisk",
    "gres/",
    "Reboot ASAP",
    "reboot timed out",
    "ResumeTimeout reached",
    "Duplicate jobid",
    "Invalid",
    "batch job complete failure",
)
_NODE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
KEY = re.compile(r"(?:^|(?<=\s))([A-Za-z][\w:/]*)=(\S*)", re.M)
_SET_BY = re.compile(r"(?P<why>.*)\[(?P<by>[^\[\]@\s]+)@(?P<at>[^\[\]]+)\]", re.S)


def parse_nodes(text: str) -> tuple[dict[str, Node], tuple[str, ...]]:
    """`scontrol show node` (with -d: GPUs in use also where accounting does not count them), -o or not."""
    nodes: dict[str, Node] = {}
    unknown: list[str] = []
    for fields in node_fields(text):
        name = fields["NodeName"]
        if not _NODE_NAME.fullmatch(name) or "State" not in fields or name in nodes:
            unknown.append(f"node record {short(name)}")
            continue
        nodes[name] = _node(fields)
    return nodes, tuple(unknown)


def node_fields(text: str) -> list[dict[str, str]]:
    """The raw fields of each record. Reason is free text: what follows it can never become another field.

    The first value of a key counts, so that a later comment cannot replace a state.
    """
    records = re.split(r"(?m)^(?=NodeName=)", text)
    found = [_fields(r) for r in records if r.startswith("NodeName=")]
    if not found:
        raise BadReply(SOURCE, f"no node in the reply: {short(text)}")
    return found


def _fields(record: str) -> dict[str, str]:
    record = record.rstrip()
    many_lines = "\n" in record
    head, *rest = re.split(r"(?m)^ {0,9}Reason=" if many_lines else r"\sReason=", record, maxsplit=1)
    fields: dict[str, str] = {}
    for key, value in KEY.findall(head):
        fields.setdefault(key, value)
    if rest:
        fields["Reason"] = _reason_lines(rest[0])
    return fields


def _reason_lines(text: str) -> str:
    """The reason with its holder last. Further lines of a reason are indented by ten, other fields by three."""
    first, *more = text.split("\n")
    lines = [line.strip() for line in more if line.startswith(" " * 10)]
    set_by = _SET_BY.match(first)
    if not (lines and set_by):
        return first.strip()
    return " ".join([set_by["why"].strip(), *lines, f"[{set_by['by']}@{set_by['at']}]"])


def _node(fields: Mapping[str, str]) -> Node:
    flags = _flags(fields["State"])
    up = bool(flags & _STANDS) and not flags & _AWAY
    return Node(
        name=fields["NodeName"],
        state=fields["State"],
        up=up,
        open=up and flags <= _TAKES_WORK,
        holders=tuple(_holders(flags, fields.get("Reason", ""))),
        gpus=gres_gpus(fields["Gres"]) if "Gres" in fields else None,
        gpus_used=_gpus_used(fields),
        full="ALLOCATED" in flags or _used_up(fields),
        features=frozenset(words(fields.get("ActiveFeatures", fields.get("AvailableFeatures", "")))),
        partitions=tuple(words(fields.get("Partitions", ""))),
        booted=text_time(fields.get("BootTime", "")),
    )


def _flags(state: str) -> frozenset[str]:
    """Base state and flags as one set: `DOWN*+DRAIN` → DOWN, NOT_RESPONDING, DRAIN."""
    flags: set[str] = set()
    for word in state.upper().split("+"):
        bare = word.rstrip("".join(_SUFFIX))
        flags.update(_SUFFIX[mark] for mark in word[len(bare) :])
        flags.update(_SHORT_STATES.get(bare, bare).split("+"))
    return frozenset(flags - {""})


def _holders(flags: Collection[str], reason: str) -> Iterable[Holder]:
    """Only what keeps the node from work now: a reason may outlast its drain, and lifting ours leaves it on a node
    that is also down."""
    drained = "DRAIN" in flags or "FAIL" in flags
    if drained:
        yield holder_of(reason)
    elif "DOWN" in flags:
        holder = holder_of(reason) if reason else Holder("controller", SOURCE, "down")
        yield replace(holder, kind="controller", tag="") if holder.kind == "xidbot" else holder
    if "MAINTENANCE" in flags:
        yield Holder("maintenance", SOURCE, "maintenance reservation")


def holder_of(reason: str) -> Holder:
    """Who wrote a reason: `why [by@time]`."""
    set_by = _SET_BY.match(reason)
    why, by, since = reason.strip(), "", None
    if set_by:
        why, by, since = set_by["why"].strip(), set_by["by"], text_time(set_by["at"])
    tag = TAG.match(why)
    if tag:
        return Holder("xidbot", by, why[tag.end() :], tag[1], since)
    kind, label = _kind_of(why)
    return Holder(kind, label or by or "somebody", why or "no reason given", since=since)


def _kind_of(why: str) -> tuple[HolderKind, str]:
    lowered = why.lower()
    for prefix in _HEALTH:
        if lowered.startswith(prefix.lower()):
            return "health", prefix.rstrip(": ")
    if lowered.startswith(tuple(p.lower() for p in _CONTROLLER)):
        return "controller", SOURCE
    return "person", ""


def _gpus_used(fields: Mapping[str, str]) -> int:
    if "GresUsed" in fields:
        return gres_gpus(fields["GresUsed"])
    return tres_gpus(fields.get("AllocTRES", ""))


def _used_up(fields: Mapping[str, str]) -> bool:
    cpus = fields.get("CPUEfctv", fields.get("CPUTot", ""))
    return _reached(fields.get("CPUAlloc", ""), cpus) or _reached(
        fields.get("AllocMem", ""), fields.get("RealMemory", "")
    )


def _reached(used: str, total: str) -> bool:
    both = used.isdecimal() and total.isdecimal() and len(used) < 16 and len(total) < 16
    return both and 0 < int(total) <= int(used)


def gres_gpus(text: str) -> int:
    """GPUs of `gpu:8`, `gpu:b200:8(S:0-1)`, `gpu:1080:7,gpu:block:1`, `gres:gpu:h100:4`; `gpu` alone is one."""
    total = 0
    for item in re.sub(r"\([^)]*\)", "", text).split(","):
        words = re.sub(r"^gres[:/]", "", item.strip()).replace("=", ":").split(":")
        if words[0] == "gpu":
            total += int(words[-1]) if re.fullmatch(r"[0-9]{1,6}", words[-1]) else 1
    return total


def tres_gpus(text: str) -> int:
    """GPUs of `cpu=1,gres/gpu=8,gres/gpu:b200=8`: the plain count, else the sum over types."""
    plain = re.search(r"(?:^|,)gres/gpu=([0-9]{1,9})(?:,|$)", text)
    if plain:
        return int(plain[1])
    return sum(int(n) for n in re.findall(r"(?:^|,)gres/gpu:[^=,]+=([0-9]{1,9})(?=,|$)", text))
