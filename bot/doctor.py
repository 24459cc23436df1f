"""What keeps a site from working, each with its remedy. Looks at everything and changes nothing."""

from __future__ import annotations

import os
import re
import sqlite3
import time
from collections import Counter
from collections.abc import Callable, Iterable
from importlib.metadata import packages_distributions
from importlib.util import find_spec
from pathlib import Path

from bot.app import slack_tokens
from bot.doctor_inputs import alertmanager, checkpoint_directories, job_logs, kernel_logs, listener
from bot.doctor_metrics import checkpoints, mapping, prometheus, signals
from bot.doctor_site import Finding, Findings, Patient, account, fail, ok, warn
from bot.errors import ConfigError, GateError, SourceError, StoreError, Unreachable
from bot.model import MODES, Argv
from bot.naming import some
from bot.sessions import matches
from bot.slack import Tokens, web_client
from bot.slack.client import slack_errors
from store import database, store

OURS = ("bot", "commands", "playbooks", "store", "templates")
QUICK = 50_000  # events that are compared while somebody waits
FAILED = 5  # the gate's word for: what I need does not answer
GATE_REMEDIES = {
    4: "correct /etc/xidbot/gate.yaml; the gate's account must be able to read it",
    FAILED: "what the gate needs does not answer: see its account's rights and the scheduler",
}


# -- our own house --------------------------------------------------------------------------------


def installation(p: Patient) -> Findings:
    """Our packages have common names: another distribution may bring some of the same name."""
    owners = packages_distributions()
    strangers = {n: sorted({o for o in owners.get(n, ()) if o != "xidbot"}) for n in OURS}
    for name, others in strangers.items():
        if others:
            yield fail(f"package `{name}` also belongs to {', '.join(others)}", "install xidbot into a venv of its own")
    home = Path(__file__).parents[1]
    elsewhere = [name for name in OURS if not _lies_in(name, home)]
    if elsewhere:
        yield fail(f"not ours: {', '.join(elsewhere)}", f"something else comes before {home} on Python's path")
    if not elsewhere and not any(strangers.values()):
        yield ok(f"installation: {home}")


def _lies_in(name: str, home: Path) -> bool:
    found = find_spec(name)
    return bool(found and found.origin and Path(found.origin).parents[1] == home)


def site_file(p: Patient) -> Findings:
    merged = p.site.policy
    yield ok(f"site file {p.site.path}: write mode {merged.write_mode}, policy {merged.hash}")


def database_file(p: Patient) -> Findings:
    kind = database._filesystem(p.db)
    if kind in database.NETWORK_FILESYSTEMS:
        yield fail(f"database {p.db} lies on {kind}", "put site.database on a local disk")
    if not p.db.exists():
        yield _no_database(p.db)
        return
    if not os.access(p.db, os.W_OK) or not os.access(p.db.parent, os.W_OK):
        yield warn(f"database {p.db} is not writable by {account()}", "run as the bot's account")
    try:
        yield from _records(p.db)
    except (StoreError, sqlite3.Error) as error:
        yield fail(
            f"database {p.db} cannot be read: {error}", "is it xidbot's, and may you read it?", out_of_reach=True
        )


def _no_database(path: Path) -> Finding:
    if os.access(next(part for part in path.absolute().parents if part.exists()), os.W_OK):
        return ok(f"database {path}: not there yet; the first run makes it")
    return fail(f"database {path} cannot be made by {account()}", "name a folder that the bot's account may write")


def _records(path: Path) -> Findings:
    connection = database.connect_read_only(path)
    try:
        (events,) = connection.execute("select count(*) from events").fetchone()
        differing = store.compare(connection)[0] if events <= QUICK else []
        lease = connection.execute("select holder, until from leases").fetchone()
        failed = connection.execute("select tag, slot, problem from slots where state = 'failed'").fetchall()
        late = "select count(*) from slots where state in ('new', 'posting') and first_wanted < ?"
        (waiting,) = connection.execute(late, (time.time() - 60,)).fetchone()
    finally:
        connection.close()
    runs = f"{lease['holder']} writes" if lease and lease["until"] > time.time() else "no bot runs on it"
    yield ok(f"database {path}: {events} events, {runs}")
    if differing:
        yield fail(f"{len(differing)} documents differ from the log: {differing[0]}", "stop the bot, `xidbot rebuild`")
    if failed:
        first = failed[0]
        yield warn(
            f"{len(failed)} messages were given up: {first['tag']}/{first['slot']}: {first['problem']}",
            "mend what Slack says; each is tried again when it changes",
        )
    if waiting:
        yield warn(f"{waiting} messages wait for more than a minute", "does the bot run, and does Slack answer?")


# -- scheduler and gate ---------------------------------------------------------------------------


def scheduler(p: Patient) -> Findings:
    cluster = p.cluster
    yield ok(f"scheduler: cluster {cluster.name}, {len(cluster.nodes)} nodes, {len(p.queue)} jobs")
    for part in cluster.unknown:
        yield warn(f"scheduler: {part} cannot be read", "run the bot with -v to see why; accounting needs slurmdbd")
    level = p.admin_level()
    if level:
        yield warn(f"{account()} has the right {level}", "the bot only reads: take it away; the gate has its own")
    else:
        yield ok(f"rights: {account()} may read and not administer")


def sessions(p: Patient) -> Findings:
    rules = p.site.policy.sessions
    if not rules:
        yield warn("no session rule: no run is under care", "add one under `sessions:`; `xidbot config example`")
    for number, rule in enumerate(rules, 1):
        given = " ".join(f"{k}={v}" for k, v in rule.match.model_dump(exclude_none=True).items())
        mine = [job for job in p.queue if matches(rule.match, job)]
        if not mine and p.queue:
            yield warn(
                f"rule {number} ({given}) matches none of {len(p.queue)} jobs",
                "compare it with `squeue -o '%i %P %q %a %j %u %k'`",
            )
        else:
            yield ok(f"rule {number} ({given}): {some([f'session-{j.id}' for j in mine]) or 'the queue is empty'}")
    bound = [f"session-{job.id}" for job in p.runs if not (job.batch and job.requeue)]
    if bound:
        yield warn(f"cannot be requeued: {some(bound)}", "submit them as batch jobs with --requeue")


def gate(p: Patient) -> Findings:
    mode = p.site.policy.write_mode
    if p.gate is None:
        writes = MODES.index(mode) >= MODES.index("approve")
        yield (
            warn(f"write mode {mode} and no gate: nothing can be done", "set scheduler.gate, see README")
            if writes
            else ok("gate: none, read-only")
        )
        return
    report = p.gate.run(Argv("status", ()), "doctor")
    if report.exit:
        remedy = GATE_REMEDIES.get(report.exit, "run its status verb as the bot's account and read what it says")
        yield fail(f"gate: {report.text or f'exit {report.exit}'}", remedy, out_of_reach=report.exit == FAILED)
    elif report.body.get("paused"):
        yield warn(f"gate: paused: {report.body.get('why')}", "`xidbot resume` ends it")
    else:
        yield from _room(report.body)


def _room(body: object) -> Findings:
    """What the gate would allow now."""
    facts = body if isinstance(body, dict) else {}
    held, writes = facts.get("held") or {}, facts.get("writes") or {}
    used = f"{len(held.get('nodes', ()))} of {held.get('cap')} nodes held, "
    used += f"{writes.get('used')} of {writes.get('cap')} writes in {writes.get('window')} s"
    if held.get("left") == 0 or writes.get("left") == 0:
        yield warn(f"gate: {used}", "release a node with proof, or wait; the caps stand in /etc/xidbot/gate.yaml")
    else:
        yield ok(f"gate: {used}")


# -- Slack ----------------------------------------------------------------------------------------


def slack(p: Patient) -> Findings:
    tokens, site = slack_tokens(p.site), p.site.config.slack
    if tokens is None or site is None:
        yield ok("slack: no tokens, so `xidbot run` shows the local workspace")
        return
    for state in p.connect(tokens.bot, site.api_url).check(site.channel):
        remedy = re.search(r"^(.*?) \((.*)\)$", state.problem)
        if remedy:
            yield fail(f"{state.name}: {remedy[1]}", remedy[2])
        else:
            yield fail(f"{state.name}: {state.problem}", "is Slack reachable?") if state.problem else ok(state.name)
    yield from _socket(tokens, site.api_url)
    if not site.roles.operator and not site.roles.admin:
        yield warn("slack: nobody is operator or admin", "slack.roles: {operator: [S…], admin: [U…]}")


def _socket(tokens: Tokens, url: str) -> Findings:
    """Asks for an address and does not use it."""
    with slack_errors("apps.connections.open"):
        web_client(tokens.bot, url).apps_connections_open(app_token=tokens.app)
    yield ok("slack socket")


# -- all of it ------------------------------------------------------------------------------------

Check = Callable[[Patient], Findings]
CHECKS: tuple[tuple[str, Check], ...] = (
    ("installation", installation),
    ("site file", site_file),
    ("database", database_file),
    ("scheduler", scheduler),
    ("sessions", sessions),
    ("prometheus", prometheus),
    ("signals", signals),
    ("mapping", mapping),
    ("checkpoints", checkpoints),
    ("checkpoint directories", checkpoint_directories),
    ("job logs", job_logs),
    ("kernel logs", kernel_logs),
    ("http", listener),
    ("alertmanager", alertmanager),
    ("gate", gate),
    ("slack", slack),
)
# What cannot be looked at without another one, and would only repeat its complaint.
NEEDS = {
    "sessions": "scheduler",
    "signals": "prometheus",
    "mapping": "prometheus",
    "checkpoints": "prometheus",
    "checkpoint directories": "scheduler",
    "job logs": "scheduler",
}


def examine(p: Patient, progress: Callable[[str], None] = lambda name: None) -> list[Finding]:
    found: list[Finding] = []
    gone: set[str] = set()
    for name, check in CHECKS:
        progress(name)
        if NEEDS.get(name) in gone or (name == "checkpoints" and not p.nodes):
            continue
        findings = list(_looked(name, check, p))
        gone |= {name} if any(finding.out_of_reach for finding in findings) else set()
        found += findings
    return found


def _looked(name: str, check: Check, p: Patient) -> Findings:
    """A check that cannot go on tells why."""
    try:
        yield from check(p)
    except SourceError as error:
        remedy = error.remedy or f"check {name} in the site file, and that it can be reached from here"
        said = error.message.removeprefix(f"{error.source}: ")
        yield fail(f"{name}: {said}", remedy, out_of_reach=isinstance(error, Unreachable))
    except GateError as error:
        yield fail(f"{name}: {error.message}", error.remedy, out_of_reach=True)
    except ConfigError as error:
        yield fail(f"{name}: {error.message}", error.remedy or "correct the site file")


def exit_code(findings: Iterable[Finding]) -> int:
    marks = Counter(finding.mark for finding in findings)
    if any(finding.out_of_reach for finding in findings):
        return 3
    return 1 if marks["warn"] or marks["fail"] else 0
