"""Slurm's replies as xidbot's words. Pure: text in, records out.

Nodes and reservations come from `scontrol show …` as text (22.05 has no JSON there), jobs from `squeue --json` in the
shapes of 21.08 to 25.x. Times in the text are Unix seconds, or local time that was printed with TZ=UTC. Every parser
raises BadReply when the reply as a whole cannot be used; a single record that cannot be understood is named in the
second value and never changes another record.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from itertools import product

from bot.errors import BadReply
from bot.model import ENDED, FAILED, Attempt, Holder, HolderKind, Job, Node, Reservation

Record = Mapping[str, object]
SOURCE = "slurm"
OPEN_JOB_ID = re.compile(r"[1-9][0-9]{0,9}(?:_[0-9]{1,9})?")
"""A job that may be acted on: one job or one task. Not a pending rest of an array, not a part of a het job."""
TAG = re.compile(r"xidbot:([0-9]+\.[0-9]+|r[0-9]+) ")
AGAIN = FAILED | {"RUNNING", "TIMEOUT", "PREEMPTED"}
"""States that a requeue makes sense in. Slurm would also rerun a completed job and one that its owner cancelled."""

# -- host lists -----------------------------------------------------------------------------------

MAX_HOSTS = 4096
_NO_HOSTS = ("", "(null)", "None assigned", "None")
_RANGES = r"\[[0-9]{1,9}(?:-[0-9]{1,9})?(?:,[0-9]{1,9}(?:-[0-9]{1,9})?)*\]"
_HOSTS = re.compile(rf"(?:[A-Za-z0-9._-]|{_RANGES})+")


def parse_hostlist(text: str, cap: int = MAX_HOSTS) -> tuple[str, ...]:
    """`node-[01-03],login` → names in order, each once. The lower bound's width is kept, as Slurm does: n[08-100].

    (ClusterShell refuses `n[01-100]`, which is how Slurm itself writes n01 … n100.) Raises BadReply.
    """
    if text.strip() in _NO_HOSTS:
        return ()
    names: dict[str, None] = {}
    for part in _host_parts(text):
        names.update(dict.fromkeys(_expand(part, cap)))
        if len(names) > cap:
            raise BadReply(SOURCE, f"a host list of more than {cap} hosts")
    return tuple(names)


def _host_parts(text: str) -> Iterable[str]:
    at = 0
    while True:
        part = _HOSTS.match(text, at)
        if part is None:
            raise BadReply(SOURCE, f"not a host list: {short(text)}")
        yield part.group()
        if part.end() == len(text):
            return
        if text[part.end()] != ",":
            raise BadReply(SOURCE, f"not a host list: {short(text)}")
        at = part.end() + 1


def _expand(part: str, cap: int) -> Iterable[str]:
    pieces = [_piece(p, cap) for p in re.findall(r"\[[^\]]*\]|[^\[]+", part)]
    if math.prod(len(p) for p in pieces) > cap:
        raise BadReply(SOURCE, f"a host list of more than {cap} hosts")
    return map("".join, product(*pieces))


def _piece(text: str, cap: int) -> list[str]:
    if not text.startswith("["):
        return [text]
    numbers: list[str] = []
    for item in text[1:-1].split(","):
        low, _, high = item.partition("-")
        first, last = int(low), int(high or low)
        if last < first or last - first + len(numbers) >= cap:
            raise BadReply(SOURCE, f"host range {item} is backwards or names more than {cap} hosts")
        numbers += [str(n).zfill(len(low)) for n in range(first, last + 1)]
    return numbers


# -- nodes ----------------------------------------------------------------------------------------

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
_KEY = re.compile(r"(?:^|(?<=\s))([A-Za-z][\w:/]*)=(\S*)", re.M)
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
    for key, value in _KEY.findall(head):
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
        features=frozenset(_words(fields.get("ActiveFeatures", fields.get("AvailableFeatures", "")))),
        partitions=tuple(_words(fields.get("Partitions", ""))),
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


def parse_reservations(text: str) -> tuple[tuple[Reservation, ...], tuple[str, ...]]:
    """`scontrol show reservation`. Raises BadReply unless it shows some or says that there are none."""
    if text.strip().startswith("No reservations in the system"):
        return (), ()
    records = [r for r in re.split(r"(?m)^(?=ReservationName=)", text) if r.strip()]
    if not records or not all(r.startswith("ReservationName=") for r in records):
        raise BadReply(SOURCE, f"no reservation in the reply: {short(text)}")
    found: list[Reservation] = []
    unknown: list[str] = []
    for record in records:
        try:
            found.append(_reservation(record))
        except BadReply:
            unknown.append(f"reservation {short(record.removeprefix('ReservationName='))}")
    return tuple(found), tuple(unknown)


def _reservation(record: str) -> Reservation:
    fields: dict[str, str] = {}
    for key, value in _KEY.findall(record):
        fields.setdefault(key, value)
    start, end = text_time(fields.get("StartTime", "")), text_time(fields.get("EndTime", ""))
    if not fields["ReservationName"] or start is None or end is None:
        raise BadReply(SOURCE, "a reservation without name or times")
    nodes = frozenset(parse_hostlist(fields.get("Nodes", "")))
    return Reservation(fields["ReservationName"], nodes, start, end, "MAINT" in fields.get("Flags", "").split(","))


# -- jobs -----------------------------------------------------------------------------------------

# 22.05 shows a flag in place of the base state.
_FLAG_STATES = {
    "CONFIGURING": "RUNNING",
    "RESIZING": "RUNNING",
    "SIGNALING": "RUNNING",
    "POWER_UP_NODE": "RUNNING",
    "STAGE_OUT": "COMPLETING",
    "REQUEUED": "PENDING",
    "REQUEUE_FED": "PENDING",
    "REQUEUE_HOLD": "PENDING",
    "SPECIAL_EXIT": "PENDING",
    "RESV_DEL_HOLD": "PENDING",
}
_BASES = (ENDED - {"REQUEUED"}) | {"PENDING", "RUNNING", "SUSPENDED", "COMPLETING", "STOPPED"}
_NO_LIMIT = 365 * 86400


def parse_jobs(text: str) -> tuple[dict[str, Job], tuple[str, ...]]:
    """`squeue --json`: each job with its present attempt; its restart count is that attempt's ordinal."""
    jobs: dict[str, Job] = {}
    unknown: list[str] = []
    for number, record in enumerate(json_jobs(text, SOURCE)):
        try:
            job = _job(record)
        except BadReply:
            unknown.append(f"job record {record_name(record, number)}")
            continue
        if job.id in jobs:
            unknown.append(f"job record {job.id}")
        jobs.setdefault(job.id, job)
    return jobs, tuple(unknown)


def is_held(job: Job) -> bool:
    """Kept from starting by its owner, an administrator or Slurm itself."""
    return "held" in job.why.lower()


def _job(record: Record) -> Job:
    job_id = job_id_of(record)
    state, stopping = _live_state(record)
    attempt = _live_attempt(record, job_id, state, stopping)
    submit = as_int(record.get("submit_time")) or 0
    return Job(
        id=job_id,
        name=as_text(record.get("name")).replace('"', "`"),  # as accounting writes it: one name for one job
        user=as_text(record.get("user_name")) or as_text(record.get("user_id")),
        state=state,
        account=as_text(record.get("account")),
        partition=as_text(record.get("partition")),
        qos=as_text(record.get("qos")),
        comment=as_text(record.get("comment")),
        why=_why(record, state),
        node_count=as_int(record.get("node_count")) or 1,
        gpus_per_node=_gpus_per_node(record),
        batch=_true(record.get("batch_flag")),
        requeue=_true(record.get("requeue")),
        submit=submit,
        first_submit=submit,
        time_limit=_limit(record.get("time_limit")),
        features=_wanted_features(as_text(record.get("features"))),
        reservation=as_text(record.get("resv_name")),
        required=parse_hostlist(as_text(record.get("required_nodes"))),
        excluded=parse_hostlist(as_text(record.get("excluded_nodes"))),
        dependency=as_text(record.get("dependency")),
        begin=as_time(record.get("eligible_time")) if state == "PENDING" else None,
        attempts=(attempt,),
    )


def job_id_of(record: Record) -> str:
    """`123`, `120_3` (task), `120_[4-7%2]` (tasks that wait together), `130+1` (part of a het job)."""
    number = as_int(record.get("job_id"))
    if not number:
        raise BadReply(SOURCE, "a job without an id")
    het, array = as_int(record.get("het_job_id")), as_int(record.get("array_job_id"))
    if het:
        return f"{het}+{as_int(record.get('het_job_offset')) or 0}"
    if not array:
        return str(number)
    task = as_int(record.get("array_task_id"))
    return f"{array}_{task}" if task is not None else f"{array}_[{as_text(record.get('array_task_string'))}]"


def _live_state(record: Record) -> tuple[str, bool]:
    """State, and whether it is a requeued job that still stops: then the record mixes both attempts."""
    words = state_words(record.get("job_state"))
    base = next((w for w in words if w in _BASES), _FLAG_STATES.get(words[0], ""))
    if not base:
        raise BadReply(SOURCE, f"job state {words[0]}")
    if "COMPLETING" in words or base == "COMPLETING":
        return "COMPLETING", "PENDING" in words or (len(words) == 1 and _runs_into_the_future(record))
    return ("STOPPED" if "STOPPED" in words else base), False


def state_words(value: object) -> tuple[str, ...]:
    """`RUNNING`, `CANCELLED by 1000` or `["PENDING", "COMPLETING"]`."""
    found = value if isinstance(value, list) else [value]
    words = tuple(w.split()[0].upper() for w in found if isinstance(w, str) and w.strip())
    if not words:
        raise BadReply(SOURCE, "a job without a state")
    return words


def _runs_into_the_future(record: Record) -> bool:
    """22.05 hides PENDING behind COMPLETING; but then start is now and the end a full time limit later."""
    if not as_int(record.get("restart_cnt")) or record.get("state_reason") == "TimeLimit":
        return False
    start, end = as_int(record.get("start_time")) or 0, as_int(record.get("end_time")) or 0
    return end - start >= (_limit(record.get("time_limit")) or _NO_LIMIT)


def _live_attempt(record: Record, job_id: str, state: str, stopping: bool) -> Attempt:
    """A pending attempt's start is an estimate, its exit code the one of the attempt before."""
    ordinal = as_int(record.get("restart_cnt")) or 0
    if stopping or state == "PENDING":
        return Attempt(job_id, ordinal, "PENDING")
    nodes = parse_hostlist(as_text(record.get("nodes")))
    start = as_time(record.get("start_time")) if nodes else None  # cancelled while it waited: it never ran
    if state not in ENDED:
        return Attempt(job_id, ordinal, state, nodes, start)
    end, code = as_time(record.get("end_time")), exit_text(record.get("exit_code"))
    return Attempt(job_id, ordinal, state, nodes, start, end, code)


def _why(record: Record, state: str) -> str:
    why = as_text(record.get("state_reason"))
    held = state == "PENDING" and (record.get("hold") is True or as_int(record.get("priority")) == 0)
    return f"{why} (held)" if held and "held" not in why.lower() else why


def _gpus_per_node(record: Record) -> int:
    asked = gres_gpus(as_text(record.get("tres_per_node")))
    detail = record.get("gres_detail")
    given = max((gres_gpus(as_text(d)) for d in detail), default=0) if isinstance(detail, list) else 0
    spread = math.ceil(tres_gpus(as_text(record.get("tres_req_str"))) / (as_int(record.get("node_count")) or 1))
    return asked or given or spread


def _wanted_features(text: str) -> frozenset[str]:
    """`a100&ib` → both. An expression with `|`, counts or brackets stays whole: no node has that, so fit says no."""
    plain = re.fullmatch(r"[\w.:&,-]*", text)
    return frozenset(w for w in re.split(r"[&,]", text) if w) if plain else frozenset({text})


# -- values in all their shapes -------------------------------------------------------------------


def json_jobs(text: str, source: str) -> list[Record]:
    try:
        reply = json.loads(text, strict=False)
    except (ValueError, RecursionError) as error:
        raise BadReply(source, f"not JSON: {short(text)}") from error
    jobs = reply.get("jobs") if isinstance(reply, dict) else None
    errors = [e for e in as_list(as_map(reply).get("errors")) if not _nothing_found(e)]
    if errors:
        raise BadReply(source, "; ".join(short(_error_text(e)) for e in errors))
    if not isinstance(jobs, list):
        raise BadReply(source, f"no jobs in the reply: {short(text)}")
    return [as_map(job) for job in jobs]


def _nothing_found(error: object) -> bool:
    return as_map(error).get("error_number") == 9003 or "Nothing found" in _error_text(error)


def _error_text(error: object) -> str:
    fields = as_map(error)
    return as_text(fields.get("description")) or as_text(fields.get("error")) or str(error)


def record_name(record: Record, number: int) -> str:
    job = as_int(record.get("job_id"))
    return str(job) if job else f"no. {number + 1}"


def as_map(value: object) -> Record:
    return value if isinstance(value, dict) else {}


def as_list(value: object) -> list[object]:
    return value if isinstance(value, list) else []


def as_text(value: object) -> str:
    """A string as it is; 22.05 writes some empty ones as null or 0."""
    if isinstance(value, str):
        return value
    return str(value) if isinstance(value, int) and not isinstance(value, bool) and value else ""


def as_int(value: object) -> int | None:
    """A plain number or {set, infinite, number}. None = not set, infinite or Slurm's own "no value"."""
    if isinstance(value, dict):
        wanted = value.get("set", True) and not value.get("infinite", False)
        return as_int(value.get("number")) if wanted and not isinstance(value.get("number"), dict) else None
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        return None
    number = int(value)
    return None if number in (2**32 - 1, 2**32 - 2, 2**64 - 1, 2**64 - 2) else number


def _true(value: object) -> bool:
    return value is True or bool(as_int(value))


def as_time(value: object) -> int | None:
    """Unix seconds; Slurm writes 0 for never."""
    seconds = as_int(value)
    return seconds if seconds and seconds > 0 else None


def text_time(text: str) -> int | None:
    if re.fullmatch(r"[0-9]{1,11}", text):
        return int(text) or None
    try:
        return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp())
    except ValueError:
        return None


def _limit(value: object) -> int | None:
    minutes = as_int(value)
    return minutes * 60 if minutes is not None else None


def exit_text(value: object) -> str:
    """`3:0` as sacct prints it: code and signal. A plain number is the wait status."""
    fields = as_map(value)
    if fields:
        signal = as_map(fields.get("signal"))
        number = as_int(signal.get("id")) or as_int(signal.get("signal_id")) or 0
        return f"{as_int(fields.get('return_code')) or 0}:{number}"
    status = as_int(value)
    return "" if status is None else f"{(status >> 8) & 255}:{status & 127}"


def _words(text: str) -> list[str]:
    return [word for word in text.split(",") if word and word != "(null)"]


def short(text: str) -> str:
    line = " ".join(text.split())
    return repr(line if len(line) <= 80 else line[:77] + "...")
