"""What `doctor` asks of Prometheus."""

from __future__ import annotations

import time

import numpy as np

from bot.doctor_site import Finding, Findings, Patient, fail, ok, warn
from bot.naming import some
from bot.ports import Matrix
from bot.sessions import rule_for
from bot.sources.prometheus import PrometheusCheckpoints
from bot.survey import unserved

SKEW = 5  # s between Prometheus' clock and ours; a third of a step


def prometheus(p: Patient) -> Findings:
    health = p.metrics.check()
    prom = p.site.config.prometheus
    yield ok(f"prometheus {prom.url}" + (f", version {health.version}" if health.version else ""))
    if health.exporters:
        yield ok("GPU exporters: " + ", ".join(f"{job} ({count})" for job, count in sorted(health.exporters.items())))
    else:
        yield fail(f"no scrape job is one of {', '.join(prom.dcgm_jobs)}", "name yours in prometheus.dcgm_jobs")
    yield _clock(p)


def _clock(p: Patient) -> Finding:
    before = time.time()
    ((_, points),) = p.metrics.instant("vector(time())")
    skew = float(points[-1, 1]) - (before + time.time()) / 2
    if abs(skew) > SKEW:
        return warn(f"Prometheus' clock is {abs(skew):.0f} s {'ahead' if skew > 0 else 'behind'}", "set both by NTP")
    return ok(f"clocks: {abs(skew):.1f} s apart")


def signals(p: Patient) -> Findings:
    """Hard evidence that cannot be told is worth a warning; no site exports everything that the others would use."""
    unknown = [name for name, matrix in p.matrices.items() if not _told(matrix)]
    hard = {name: p.site.policy.signals[name] for name in unknown if p.site.policy.signals[name].hard}
    for name, why in unserved(p.metrics, hard).items():
        exported = f"try it in Prometheus; signals.{name}.query"
        remedy = "export it, or live without the signal" if why.startswith("no ") else exported
        yield warn(f"signal {name} is unknown: {why}", remedy)
    rest = "" if not unknown else "; `xidbot signals` says why the others cannot"
    yield ok(f"signals: {len(p.matrices) - len(unknown)} of {len(p.matrices)} can be told{rest}")


def _told(matrix: Matrix) -> set[str]:
    """Hosts that have a value."""
    return {host for i, host in enumerate(matrix.hosts) if not np.isnan(matrix.values[:, i]).all()}


def mapping(p: Patient) -> Findings:
    """Hosts of the exporters against nodes of the scheduler; a trainer's own metrics may come from anywhere."""
    matrices = [matrix for name, matrix in p.matrices.items() if p.site.policy.signals[name].exporter]
    hosts = {host: known for m in matrices for host, known in zip(m.hosts, m.known, strict=True)}
    told = set().union(*map(_told, matrices))
    strangers = sorted(host for host, known in hosts.items() if not known)
    if not p.nodes:
        return
    if strangers:
        yield warn(
            f"hosts that are no node of the scheduler: {some(strangers)}",
            "prometheus.node_labels and node_pattern must lead to the scheduler's names",
        )
    silent = sorted(name for name in p.nodes if _gpus(p, name) and name not in told)
    if silent:
        yield warn(f"nodes with GPUs and no telemetry: {some(silent)}", "is the exporter there, and scraped?")
    if not strangers and not silent:
        yield ok(f"mapping: {len(hosts)} hosts are nodes of the scheduler")


def _gpus(p: Patient, node: str) -> int:
    return p.site.policy.gpus.get(node, p.cluster.nodes[node].gpus or 0)


def checkpoints(p: Patient) -> Findings:
    """The gauges of the runs that are under way, but for those whose directory is read."""
    alone = [job for job in p.runs if (rule := rule_for(job, p.site.policy)) and not rule.checkpoint.directory]
    running = {job.id: (job.id, job.name, f"session-{job.id}") for job in alone if job.state == "RUNNING"}
    gauges = next((rule.checkpoint.prometheus for rule in p.site.policy.sessions), None)
    if not running:
        return
    found = {save.job for save in PrometheusCheckpoints(p.metrics, gauges).checkpoints(p.at, running)}
    silent = [f"session-{job}" for job in running if job not in found]
    if silent:
        yield warn(
            f"no checkpoint gauge yet: {some(silent)}",
            "xidbot cannot know what such a run regained: sessions.checkpoint.prometheus names the gauges",
        )
    else:
        yield ok(f"checkpoints: gauges of {len(running)} runs")
