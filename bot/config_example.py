"""A full site file, made from the models: every key with what it means, so that none can be missing here."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from textwrap import indent
from typing import Any

from pydantic import BeforeValidator
from pydantic.fields import FieldInfo

from bot.config import Config
from bot.yamlfile import _inner_model, seconds

HEAD = """\
# Every key of xidbot's site file. Keys with a value show a default or an example; those behind a # are optional.
# Durations: 90s, 15m, 24h, 7d. An unknown key is refused with its line. `xidbot check-config` reads it."""

# What a site would write where the default is empty or missing.
EXAMPLES: dict[str, Any] = {
    "site.name": "haein",
    "site.timezone": "Asia/Seoul",
    "site.database": "/var/lib/xidbot/xidbot.db",
    "prometheus.url": "http://prom:9090",
    "prometheus.token_file": "/etc/xidbot/prom.token",
    "prometheus.ca_file": "/etc/xidbot/prom-ca.pem",
    "scheduler.conf": "/etc/slurm/slurm.conf",
    "scheduler.gate": ["sudo", "-n", "-u", "xidbot-gate", "/opt/xidbot/bin/xidbot-gate"],
    "sessions.match.partition": "train",
    "sessions.match.account": "research",
    "sessions.match.qos": "pretrain",
    "sessions.match.comment": "xidbot*",
    "sessions.match.name": "llm-*",
    "sessions.match.user": "alice",
    "sessions.mode": "approve",
    "slack.channel": "C0123",
    "slack.on_call": "S0ONCALL",
    "slack.secondary": "U02",
    "slack.roles.admin": ["U01"],
    "slack.roles.operator": ["S0ONCALL"],
    "slack.roles.viewer": "*",
    "slack.users": {"alice": "U01"},
    "slack.bot_token_file": "/etc/xidbot/slack-bot.token",
    "slack.app_token_file": "/etc/xidbot/slack-app.token",
    "http.token_file": "/etc/xidbot/http.token",
    "alertmanager.url": "http://alertmanager:9093",
    "alertmanager.token_file": "/etc/xidbot/alertmanager.token",
    "alertmanager.ca_file": "/etc/xidbot/alertmanager-ca.pem",
    "logs.kernel_log.journal": ["/var/log/journal-json/*.json"],
    "logs.kernel_log.syslog": ["/var/log/remote/*/kern.log"],
    "logs.kernel_log.timezone": "UTC",
    "expected.nodes": "node-[01-63]",
    "expected.gpus": 8,
    "storage.slots": {"storage-01:/export/ckpt": 128},
    "storage.nconnect": 8,
    "storage.wsize": 1_048_576,
    "storage.link": 25_000_000_000,
}
SHOWN = {
    "sessions.match.partition",
    "sessions.match.qos",
}  # of the keys without a default, those that are not behind a #

WHY: dict[str, str] = {
    "site": "The installation: one cluster, one process, one database.",
    "site.name": "how messages call it",
    "site.timezone": "of messages, and of the digest's Monday 09:00",
    "site.write_mode": "observe < suggest < approve < veto < auto: a ceiling over everything",
    "site.database": "on a local disk; SQLite is not safe on a network filesystem",
    "prometheus": "Prometheus, or what speaks its API.",
    "prometheus.url": "without /api/v1",
    "prometheus.token_file": "bearer token, read at each request",
    "prometheus.ca_file": "who signed the server's certificate",
    "prometheus.node_labels": "where the node's name stands, the most trusted first",
    "prometheus.node_pattern": "its one group cuts the scheduler's name out of the label",
    "prometheus.dcgm_jobs": "scrape jobs of the GPU exporters",
    "prometheus.timeout": "for a whole answer",
    "scheduler": "The scheduler. Read by its own commands, changed through the gate alone.",
    "scheduler.kind": "slurm",
    "scheduler.conf": "else $SLURM_CONF or Slurm's own default",
    "scheduler.gate": "how the gate is called; [] = read-only",
    "scheduler.timeout": "for each command",
    "sessions": "Runs under care: the first rule that matches; nothing else is ever requeued.",
    "sessions.match": "globs; every one given must match",
    "sessions.match.partition": "partition",
    "sessions.match.account": "account",
    "sessions.match.qos": "QOS",
    "sessions.match.comment": "the job's comment",
    "sessions.match.name": "job name",
    "sessions.match.user": "who submitted it",
    "sessions.controller": "who recovers these runs; where it is somebody else xidbot only observes",
    "sessions.checkpoint": "how it is known that a run saved: without it nothing is ever known to have regained",
    "sessions.checkpoint.prometheus": "gauges of the trainer; $job is the job's id, its name or session-ID",
    "sessions.checkpoint.prometheus.step": "step of the newest complete save",
    "sessions.checkpoint.prometheus.started": "Unix seconds at which a save began",
    "sessions.checkpoint.prometheus.completed": "Unix seconds at which it was complete",
    "sessions.checkpoint.directory": "where it saves, like /ckpt/$user/$name; also $job, $session and globs",
    "sessions.checkpoint.marker": "file it writes last there; empty: the usual frameworks' own, rename: none is needed",
    "sessions.log": "its own log, like /logs/$user/$name-$job.*: which rank failed first, whether the run gets on",
    "sessions.mode": "a ceiling for these runs, below site.write_mode",
    "sessions.no_requeue_codes": "exit codes that say: do not run me again",
    "slack": "Slack. Without tokens in the environment or in files a local workspace stands in.",
    "slack.channel": "the channel's id, not its name",
    "slack.mode": "socket: no address of ours has to be reachable",
    "slack.on_call": "user or group that is mentioned when something waits for a person",
    "slack.secondary": "and when nobody answered",
    "slack.roles": 'user ids, group ids, or "*" for everybody; an empty list is nobody',
    "slack.roles.admin": "may give nodes back and end a pause",
    "slack.roles.operator": "may approve, retry, exclude, pause",
    "slack.roles.viewer": "may look",
    "slack.users": "accounts of the command line and who they are in Slack",
    "slack.bot_token_file": "else $SLACK_BOT_TOKEN",
    "slack.app_token_file": "else $SLACK_APP_TOKEN",
    "slack.api_url": "another one only for tests and proxies",
    "http": "One listener for all that comes in: POST /alertmanager and /checkpoint, GET /healthz and /metrics.",
    "http.listen": "beyond loopback only with a token_file",
    "http.token_file": "bearer token that senders show; /healthz needs none",
    "alertmanager": "Its silences are respected, and pages go out through it.",
    "alertmanager.url": "with its route prefix, without /api/v2; a list where there are several",
    "alertmanager.token_file": "bearer token, if it asks for one",
    "alertmanager.ca_file": "who signed its certificate",
    "alertmanager.timeout": "for a whole answer of it",
    "alertmanager.pages": "false: nothing is sent, silences are still read",
    "alertmanager.every": "how often an open page is sent again; it ends after three times of silence",
    "logs": "Logs of the nodes, where they come together on this machine.",
    "logs.kernel_log": "the kernel's: Xids, NVSwitch errors, lost GPUs; globs, followed across rotation",
    "logs.kernel_log.journal": "files with a journal entry in JSON a line (journalctl -o json, vector, fluent-bit)",
    "logs.kernel_log.command": "prints such entries, asked in every tick: journalctl -o json --since=@$since …",
    "logs.kernel_log.syslog": "plain files; what they tell is a claim, because every user of a node can log",
    "logs.kernel_log.timezone": "of times in these files that name none; else site.timezone",
    "logs.kernel_log.timeout": "for the command",
    "expected": "GPUs a node should have, where the scheduler's Gres does not tell the truth.",
    "expected.nodes": "a host list",
    "expected.gpus": "0 = none is expected",
    "storage": "What the counters do not tell of NFS mounts.",
    "storage.slots": "export: RPC slots of one connection; RDMA mounts report none",
    "storage.nconnect": "connections of a mount, where node_exporter shows one of them",
    "storage.wsize": "bytes of a full WRITE; else the mean that is seen",
    "storage.link": "bytes/s of a node's storage link, where node_exporter does not tell its speed",
    "policy": "Numbers. These are the shipped ones: keep only what your site changes.",
    "signals": "The signals' catalogue, changed by id (docs/signals.md). Another id is a signal of your own, such as\n"
    "# a score that you fuse yourself: soft, and a claim that warns and acts on nothing, unless you say otherwise.",
    "playbooks": "Playbooks. These are the shipped ones; the same id replaces, and yours are asked first.",
}


def example() -> str:
    """Validates as it is, and with every optional key switched on."""
    return "\n\n".join([HEAD, *(_section(name, info) for name, info in Config.model_fields.items())]) + "\n"


def _section(name: str, info: FieldInfo) -> str:
    body = DATA[name]() if name in DATA else "\n".join(_field(name, name, info))
    return f"# {WHY[name]}\n{body}"


def _field(path: str, name: str, info: FieldInfo) -> Iterator[str]:
    """A key with what lies below it."""
    model = _inner_model(info.annotation)
    if model is None:
        yield _scalar(path, name, info)
        return
    below = [line for key, field in model.model_fields.items() for line in _field(f"{path}.{key}", key, field)]
    note = f"  # {WHY[path]}" if "." in path else ""
    yield f"{name}:{note}"
    listed = "tuple" in str(info.annotation)
    yield from (("  - " if listed and i == 0 else "    " if listed else "  ") + line for i, line in enumerate(below))


def _scalar(path: str, name: str, info: FieldInfo) -> str:
    value = EXAMPLES.get(path, info.default)
    optional = info.default is None and path not in SHOWN
    return f"{'# ' if optional else ''}{name}: {_written(value, info)}  # {WHY[path]}"


def _written(value: Any, info: FieldInfo) -> str:
    if any(isinstance(m, BeforeValidator) and m.func is seconds for m in info.metadata):
        return _duration(value)
    if isinstance(value, str | Path) and re.fullmatch(r"[A-Za-z0-9/][\w./:-]*", str(value)):
        return str(value)
    return json.dumps(str(value) if isinstance(value, Path) else value, ensure_ascii=False)


def _duration(value: int) -> str:
    sizes = ((86400, "d"), (3600, "h"), (60, "m"), (1, "s"))
    return next(f"{value // size}{unit}" for size, unit in sizes if value % size == 0)


# -- parts that are data --------------------------------------------------------------------------


def _policy() -> str:
    text = files("bot").joinpath("policy.yaml").read_text(encoding="utf-8")
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    return "policy:\n" + indent("\n".join(lines), "  ")


def _signals() -> str:
    score = "{class: threshold, at: 0.5, strength: 0.6, ramp: 1, full: 0.79}"
    lines = (
        "signals:",
        "  gpu_missing: {persistence: 2m}  # how long the evidence must last before it counts",
        "  # sm_clock: {weight: 0}  # one of ours that is still shown, and opens nothing any more",
        f"  # our_score: {{query: max by ($by) (our_score), evidence: {score}}}",
    )
    return "\n".join(lines)


def _playbooks() -> str:
    found = sorted((f for f in files("playbooks").iterdir() if f.name.endswith(".yaml")), key=lambda f: f.name)
    texts = (indent(f.read_text(encoding="utf-8").rstrip(), "    ") for f in found)
    return "playbooks:\n" + "\n".join(f"  - {text[4:]}" for text in texts)


DATA = {"policy": _policy, "signals": _signals, "playbooks": _playbooks}
