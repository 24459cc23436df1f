"""xidbot-gate: the only program of xidbot that changes Slurm.

    xidbot-gate VERB [TARGET] [--reason R] [--restart N] [--why W] --key K

It runs under the one account that may drain, prints one JSON object and exits 0 done, 3 already satisfied, 4 refused,
5 failed (ask again with the same key), 6 unclear (a person must look). One key happens once, also when a caller died
or two call at the same time: a lock, and a log that is read first. A command that fails may have acted, so Slurm is
read after every one, and only what was read counts. Its settings lie in a file that the caller cannot choose.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NoReturn

from bot import gate_parts
from bot.errors import ConfigError, SourceError
from bot.gate_parts import (
    ALREADY,
    DONE,
    FAILED,
    REFUSED,
    UNCLEAR,
    End,
    Log,
    Ran,
    Settings,
    Slurm,
    load_settings,
    locked,
)
from bot.model import Holder, Job, Node
from bot.slurm_records import AGAIN, OPEN_JOB_ID, TAG, holder_of, is_held

LATER = ("requeue-hold", "release-own-job", "collect", "test", "sweep")
NEXT_SECOND = 1.1  # a node that started a job again in the second of its requeue would kill it: "credential revoked"
SETTLE = 10.0  # seconds to wait for a requeued job to stop; the caller asks again after that
CLOCK_SLACK = 2  # seconds that the controller's clock may be ahead of ours
NODE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
KEY = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:#+@/-]{0,199}")
NUMBER = re.compile(r"[0-9]{1,9}")
MAX_REASON = 200


# -- a call ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Call:
    """What was asked, and all that is needed to answer."""

    verb: str
    target: str
    key: str
    reason: str
    why: str
    restart: int | None  # None: not given
    settings: Settings
    slurm: Slurm
    log: Log
    by: str

    def say(self, stage: str, **facts: object) -> None:
        entry = {"at": time.time(), "key": self.key, "verb": self.verb, "target": self.target, "stage": stage}
        self.log.append({**entry, "by": self.by, **facts})

    def began(self, stage: str) -> bool:
        return any(entry.get("stage") == stage for entry in self.log.of(self.key))

    def must_not_be_paused(self) -> None:
        why = paused(self.settings)
        if why is not None:
            raise End(REFUSED, f"paused: {why}", paused=True)

    def must_have_slot(self, stage: str) -> None:
        caps, used = self.settings.caps, self.log.writes(time.time() - self.settings.caps.window)
        if len(used) >= caps.writes and not self.began(stage):
            wait = int(min(used.values(), default=time.time()) + caps.window - time.time()) + 1
            raise End(REFUSED, f"{len(used)} writes in {caps.window} s, {caps.writes} are allowed; next in {wait} s")


def main(argv: Sequence[str] | None = None) -> int:
    try:
        exit, body = carry_out(_parsed(sys.argv[1:] if argv is None else list(argv)))
    except End as end:
        exit, body = end.exit, {"reason": end.reason, **end.facts}
    except ConfigError as error:
        exit, body = REFUSED, {"reason": f"gate settings: {error}"}
    except (SourceError, OSError) as error:
        exit, body = FAILED, {"reason": str(error)}
    print(json.dumps({"exit": exit, **body}), flush=True)
    return exit


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise End(REFUSED, f"usage: {message}", verbs=[*VERBS, *LATER])


def _parsed(argv: list[str]) -> argparse.Namespace:
    parser = _Parser(prog="xidbot-gate", add_help=False, allow_abbrev=False)
    parser.add_argument("verb")
    parser.add_argument("target", nargs="?", default="")
    parser.add_argument("--key", default="")
    parser.add_argument("--reason", default="")
    parser.add_argument("--why", default="")
    parser.add_argument("--restart", default="")
    return parser.parse_args(argv)


def carry_out(asked: argparse.Namespace) -> tuple[int, dict[str, object]]:
    """One verb. Verbs without a key (status, pause, resume) never wait for the lock."""
    if asked.verb in LATER:
        raise End(REFUSED, f"{asked.verb} is not there yet")
    if asked.verb not in VERBS:
        raise End(REFUSED, f"no verb {asked.verb[:40]!r}", verbs=[*VERBS, *LATER])
    settings = load_settings(gate_parts.CONFIG)
    if asked.verb not in KEYED:
        return VERBS[asked.verb](_call(asked, settings, None))
    _must_match(KEY, asked.key, "--key")
    with locked(settings.log.with_name(f"{settings.log.name}.lock")) as lock:
        return _once(_call(asked, settings, lock))


def _call(asked: argparse.Namespace, settings: Settings, lock: int | None) -> Call:
    by = os.environ.get("SUDO_USER") or str(os.getuid())
    slurm = Slurm(settings, lock)
    if asked.restart:
        _must_match(NUMBER, asked.restart, "--restart")
    restart = int(asked.restart) if asked.restart else None
    words = (asked.verb, asked.target, asked.key, asked.reason, asked.why, restart)
    return Call(*words, settings=settings, slurm=slurm, log=Log(settings.log), by=by)


def _once(call: Call) -> tuple[int, dict[str, object]]:
    """The key's own past comes first. What ended as done is never repeated, whatever has happened since."""
    for entry in call.log.of(call.key):
        if (entry.get("verb"), entry.get("target")) != (call.verb, call.target):
            raise End(REFUSED, f"this key stood for {entry.get('verb')} {entry.get('target')}")
        if entry.get("stage") == "end" and entry.get("exit") == DONE:
            raise End(ALREADY, "this key was carried out before", ours=True, done_at=entry.get("at"))
    try:
        exit, body = VERBS[call.verb](call)
    except End as end:
        exit, body = end.exit, {"reason": end.reason, **end.facts}
    call.say("end", exit=exit, said=body.get("reason") or body.get("detail"))
    return exit, body


def _must_match(pattern: re.Pattern[str], text: str, what: str) -> None:
    if not pattern.fullmatch(text):
        raise End(REFUSED, f"{what} {text[:60]!r} is not acceptable")


def _done(detail: str, **facts: object) -> tuple[int, dict[str, object]]:
    return DONE, {"detail": detail, "ours": True, **facts}


# -- holding and releasing nodes ------------------------------------------------------------------


def hold_node(call: Call) -> tuple[int, dict[str, object]]:
    """Drain with our tag. Whoever holds the node already keeps it; a note of somebody's is not overwritten either."""
    tag = _tag_in(call.reason)
    nodes, reasons = _nodes_with_target(call)
    node = nodes[call.target]
    _stop_if_held(node, tag, call)
    _stop_if_noted(reasons[call.target], node.name)
    call.must_not_be_paused()
    _must_have_room(nodes, call)
    call.must_have_slot("hold")
    call.say("hold", reason=call.reason)
    ran = call.slurm.change("update", f"nodename={node.name}", "state=drain", f"reason={call.reason}")
    call.say("held", code=ran.code, said=ran.said)
    after = _read_again(call, ran)
    if after.ours and after.ours.tag == tag:
        return _done(f"{node.name} is held as {tag}", state=after.state)
    raise _not_done(ran, f"{node.name} is {after.state} and not held by us", state=after.state)


def release_own(call: Call) -> tuple[int, dict[str, object]]:
    """Lift our drain, never anybody else's. UNDRAIN leaves a node down that is down for another reason."""
    nodes, _ = _nodes_with_target(call)
    node = nodes[call.target]
    if node.ours is None:
        raise End(ALREADY, f"{node.name} is not held by us{_held_by(node)}", ours=call.began("release"))
    call.must_not_be_paused()
    call.say("release", tag=node.ours.tag)
    ran = call.slurm.change("update", f"nodename={node.name}", "state=undrain")
    call.say("released", code=ran.code, said=ran.said)
    after = _read_again(call, ran)
    if after.ours is None:
        return _done(f"{node.name} is released{_held_by(after)}", state=after.state, tag=node.ours.tag)
    raise _not_done(ran, f"{node.name} is still held as {after.ours.tag}", state=after.state)


def _tag_in(reason: str) -> str:
    found = TAG.match(reason)
    if not found or not reason[found.end() :].strip() or len(reason) > MAX_REASON or not reason.isprintable():
        raise End(REFUSED, f"--reason must be `xidbot:<tag> why` in at most {MAX_REASON} printable characters")
    return found[1]


def _nodes_with_target(call: Call) -> tuple[dict[str, Node], dict[str, str]]:
    """All nodes of the cluster and their raw reasons; the target is among them and we may touch it."""
    _must_match(NODE, call.target, "node")
    nodes, reasons = call.slurm.nodes()
    if call.target not in nodes:
        raise End(REFUSED, f"Slurm knows no node {call.target}")
    if not _allows(call.settings.nodes, call.target):
        raise End(REFUSED, f"{call.target} is not in the gate's list of nodes")
    return nodes, reasons


def _allows(allowed: frozenset[str], name: str) -> bool:
    return "*" in allowed or name in allowed


def _stop_if_held(node: Node, tag: str, call: Call) -> None:
    if node.ours:
        ours = node.ours.tag == tag
        if ours and call.began("hold"):  # the caller died after Slurm had done it
            raise End(DONE, f"{node.name} is held as {tag}", ours=True, state=node.state)
        raise End(ALREADY, f"{node.name} is held as {node.ours.tag}", ours=ours, holder=_spoken(node.ours))
    if node.others:
        holder = _spoken(node.others[0])
        raise End(ALREADY, f"{node.name} is held by {holder}", ours=False, holder=holder)


def _stop_if_noted(reason: str, name: str) -> None:
    note = holder_of(reason) if reason else None
    if note and note.kind in ("person", "health"):
        raise End(REFUSED, f"{name} carries a note and is not drained: {_spoken(note)}; it would be overwritten")


def _held_by(node: Node) -> str:
    return f", but by {_spoken(node.others[0])}" if node.others else ""


def _spoken(holder: Holder) -> str:
    return f"{holder.by}: {holder.why}"


def held_limit(settings: Settings, nodes: Mapping[str, Node]) -> int:
    """How many nodes we may hold at once. The share is one of the nodes we may touch, and never makes it none."""
    allowed = sum(1 for name in nodes if _allows(settings.nodes, name))
    share = max(1, int(settings.caps.held_share * allowed)) if allowed else 0
    return min(settings.caps.held_nodes, share)


def _must_have_room(nodes: Mapping[str, Node], call: Call) -> None:
    held, limit = _held(nodes), held_limit(call.settings, nodes)
    if len(held) >= limit:
        raise End(REFUSED, f"{len(held)} nodes are held by us ({', '.join(held)}), {limit} are allowed", held=held)


def _held(nodes: Mapping[str, Node]) -> dict[str, str]:
    return {name: node.ours.tag for name, node in sorted(nodes.items()) if node.ours}


def _read_again(call: Call, ran: Ran) -> Node:
    try:
        node = call.slurm.nodes()[0].get(call.target)
    except (End, SourceError) as error:
        raise End(UNCLEAR, f"Slurm said {ran.said!r} and cannot be read since: {error}") from error
    if node is None:
        raise End(UNCLEAR, f"Slurm said {ran.said!r} and shows no node {call.target} since")
    return node


def _not_done(ran: Ran, seen: str, **facts: object) -> End:
    """Read after the command: it has not happened. A refusal by Slurm is a failure, silence is unclear."""
    if ran.code:
        return End(FAILED, f"Slurm refused: {ran.said}", **facts)
    return End(UNCLEAR, f"Slurm said {ran.said!r}, but {seen}", **facts)


# -- requeueing a job -----------------------------------------------------------------------------


def requeue(call: Call) -> tuple[int, dict[str, object]]:
    """`scontrol requeue`, then StartTime=now: Slurm would else wait for the life of a credential, two minutes."""
    _must_match(OPEN_JOB_ID, call.target, "job")
    if call.restart is None:
        raise End(REFUSED, "--restart must say which run of the job is meant")
    job = _allowed_job(call)
    ordinal = job.attempts[-1].ordinal
    if ordinal < call.restart:
        raise End(UNCLEAR, f"job {job.id} is at restart {ordinal}: Slurm lost state, or the id was reused")
    if ordinal > call.restart and not call.began("requeue"):
        raise End(ALREADY, "already requeued by somebody else", ours=False, restart=ordinal, state=job.state)
    if ordinal == call.restart:
        _requeue_now(job, call)
    return _start(call)


def _allowed_job(call: Call) -> Job:
    jobs = call.slurm.jobs()
    job = jobs.get(call.target)
    if job is None:
        parts = [i for i in jobs if i.startswith((f"{call.target}_", f"{call.target}+"))]
        if parts:
            raise End(REFUSED, f"{call.target} stands for {len(parts)} records ({parts[0]}, …): name one task")
        raise End(REFUSED, f"job {call.target} is not in the queue")
    for partition in job.partition.split(","):
        if not _allows(call.settings.partitions, partition):
            raise End(REFUSED, f"partition {partition} is not in the gate's list")
    if not _allows(call.settings.accounts, job.account):
        raise End(REFUSED, f"account {job.account or '(none)'} is not in the gate's list")
    return job


def _requeue_now(job: Job, call: Call) -> None:
    if job.state == "COMPLETING":
        raise End(FAILED, f"job {job.id} is still stopping; ask again", state=job.state)
    if job.state not in AGAIN:
        raise End(REFUSED, f"job {job.id} is {job.state}: there is no run to repeat", state=job.state)
    if not job.batch or not job.requeue:
        why = "was submitted with --no-requeue" if job.batch else "is no batch job"
        raise End(REFUSED, f"job {job.id} {why}")
    call.must_not_be_paused()
    call.must_have_slot("requeue")
    call.say("requeue", restart=call.restart, state=job.state)
    ran = call.slurm.change("requeue", job.id)
    call.say("requeued", code=ran.code, said=ran.said)
    after = _job_again(call, ran)
    if after.attempts[-1].ordinal <= job.attempts[-1].ordinal:
        raise _not_done(ran, f"job {job.id} is {after.state}", state=after.state)


def _start(call: Call) -> tuple[int, dict[str, object]]:
    """A start that is set while the job still stops is lost, so that is waited for."""
    job = _stopped(call)
    facts: dict[str, object] = {"restart": job.attempts[-1].ordinal, "state": job.state}
    if call.restart is not None and job.attempts[-1].ordinal > call.restart + 1:
        return _done(f"job {job.id} was requeued, and again since", **facts)
    if is_held(job):
        raise End(UNCLEAR, f"job {job.id} was requeued, but it is held ({job.why})", **facts)
    if not _waits(job):
        return _done(f"job {job.id} was requeued and is {job.state}", **facts)
    _must_not_be_paused_now(job, call, facts)
    time.sleep(NEXT_SECOND)
    call.say("start", restart=job.attempts[-1].ordinal)
    ran = call.slurm.change("update", f"jobid={job.id}", "StartTime=now")
    call.say("started", code=ran.code, said=ran.said)
    after = _job_again(call, ran)
    if _waits(after):
        raise End(FAILED, f"job {job.id} was requeued, but starts only later: {ran.said}; ask again", **facts)
    return _done(f"job {job.id} was requeued and is {after.state}", **{**facts, "state": after.state})


def _must_not_be_paused_now(job: Job, call: Call, facts: Mapping[str, object]) -> None:
    why = paused(call.settings)
    if why is not None:
        raise End(REFUSED, f"job {job.id} was requeued and starts by itself later; paused since: {why}", **facts)


def _stopped(call: Call) -> Job:
    until = time.monotonic() + SETTLE
    while True:
        job = _job_again(call, None)
        if job.state != "COMPLETING":
            return job
        if time.monotonic() > until:
            raise End(
                FAILED, f"job {job.id} was requeued and is still stopping; ask again to start it", state=job.state
            )
        time.sleep(0.25)


def _job_again(call: Call, ran: Ran | None) -> Job:
    said = f"Slurm said {ran.said!r} and" if ran else "Slurm"
    try:
        job = call.slurm.jobs().get(call.target)
    except (End, SourceError) as error:
        raise End(UNCLEAR, f"{said} cannot be read since: {error}") from error
    if job is None:
        raise End(UNCLEAR, f"{said} shows no job {call.target} since")
    return job


def _waits(job: Job) -> bool:
    return job.state == "PENDING" and job.begin is not None and job.begin > time.time() + CLOCK_SLACK


# -- pausing and looking --------------------------------------------------------------------------


def paused(settings: Settings) -> str | None:
    """Why writes are stopped, or None. A pause file that cannot be looked at stops them too."""
    try:
        return settings.pause_file.read_text(encoding="utf-8", errors="replace").strip()[:300] or "no reason given"
    except FileNotFoundError:
        return None
    except OSError as error:
        return f"{settings.pause_file}: {error.strerror}"


def pause(call: Call) -> tuple[int, dict[str, object]]:
    was = paused(call.settings)
    if was is not None:
        raise End(ALREADY, f"paused before: {was}", paused=True)
    why = " ".join("".join(c if c.isprintable() else " " for c in call.why).split())[:200] or "no reason given"
    line = f"{why} ({call.by}, {time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime())})"
    call.settings.pause_file.write_text(line + "\n", encoding="utf-8")
    call.settings.pause_file.chmod(0o644)
    with contextlib.suppress(OSError):  # it is paused; a full disk must not make that look like a failure
        call.say("pause", why=why)
    return DONE, {"detail": f"paused: {line}", "paused": True}


def resume(call: Call) -> tuple[int, dict[str, object]]:
    if paused(call.settings) is None:
        raise End(ALREADY, "it was not paused", paused=False)
    call.settings.pause_file.unlink(missing_ok=True)
    call.say("resume", why=call.why[:200])
    return DONE, {"detail": "writes are allowed again", "paused": False}


def status(call: Call) -> tuple[int, dict[str, object]]:
    """What the gate would allow now. Slurm unreadable: exit 5 with all that does not need Slurm."""
    caps = call.settings.caps
    used = call.log.writes(time.time() - caps.window)
    why = paused(call.settings)
    body: dict[str, object] = {
        "paused": why is not None,
        "why": why or "",
        "writes": {
            "used": len(used),
            "cap": caps.writes,
            "left": max(0, caps.writes - len(used)),
            "window": caps.window,
        },
    }
    try:
        nodes = call.slurm.nodes()[0]
    except (End, SourceError) as error:
        return FAILED, {**body, "reason": str(error)}
    held, limit = _held(nodes), held_limit(call.settings, nodes)
    room = {"cap": limit, "left": max(0, limit - len(held)), "nodes": held}
    return DONE, {**body, "held": room, "detail": f"{len(held)} of {limit} nodes held"}


KEYED = ("hold-node", "release-own", "requeue")
VERBS: dict[str, Callable[[Call], tuple[int, dict[str, object]]]] = {
    "hold-node": hold_node,
    "release-own": release_own,
    "requeue": requeue,
    "status": status,
    "pause": pause,
    "resume": resume,
}

if __name__ == "__main__":
    sys.exit(main())
