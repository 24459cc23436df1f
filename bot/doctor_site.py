"""A site as `doctor` finds it, and what there is to say about it."""

from __future__ import annotations

import os
import pwd
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Literal

from bot.app import make_gate, make_scheduler
from bot.errors import SourceError
from bot.eyes import make_metrics
from bot.model import ALIVE, Cluster, Job
from bot.ports import Gate, Matrix, Scheduler
from bot.schedulers import process
from bot.sessions import rule_for
from bot.site import Site
from bot.slack import SlackChat, web_client
from bot.sources.prometheus import PrometheusSource

Mark = Literal["ok", "warn", "fail"]


@dataclass(frozen=True, slots=True)
class Finding:
    """out_of_reach: it could not be looked at, because something does not answer."""

    mark: Mark
    what: str
    remedy: str = ""
    out_of_reach: bool = False

    def __str__(self) -> str:
        return f"{self.mark:<4}  {self.what}" + (f"  · {self.remedy}" if self.remedy else "")


Findings = Iterator[Finding]


def ok(what: str) -> Finding:
    return Finding("ok", what)


def warn(what: str, remedy: str) -> Finding:
    return Finding("warn", what, remedy)


def fail(what: str, remedy: str, *, out_of_reach: bool = False) -> Finding:
    return Finding("fail", what, remedy, out_of_reach)


@dataclass
class Patient:
    """A site with everything it is made of."""

    site: Site
    db: Path
    metrics: PrometheusSource
    scheduler: Scheduler
    gate: Gate | None
    admin_level: Callable[[], str]
    connect: Callable[[str, str], SlackChat] = field(default=lambda token, url: SlackChat(web_client(token, url)))

    @cached_property
    def at(self) -> int:
        """The moment that a tick would look at."""
        numbers = self.site.policy.numbers.time
        return (int(time.time()) - numbers.lag) // numbers.step * numbers.step

    @property
    def cluster(self) -> Cluster:
        """Raises SourceError."""
        if isinstance(self._cluster, SourceError):
            raise self._cluster
        return self._cluster

    @cached_property
    def _cluster(self) -> Cluster | SourceError:
        """Asked once, also when nothing answers: each question may last as long as its deadline."""
        try:
            return self._snapshot()
        except SourceError as error:
            return error

    def _snapshot(self) -> Cluster:
        """A watched job makes it ask accounting too."""
        first = self.scheduler.snapshot(int(time.time()))
        ours = [job.id for job in first.jobs.values() if rule_for(job, self.site.policy)]
        return self.scheduler.snapshot(int(time.time()), ours or ["1"])

    @property
    def queue(self) -> list[Job]:
        """Jobs that run or wait; squeue shows ended ones for a while too."""
        return [job for job in self.cluster.jobs.values() if job.state in ALIVE or job.state == "PENDING"]

    @property
    def runs(self) -> list[Job]:
        return [job for job in self.queue if rule_for(job, self.site.policy)]

    @cached_property
    def nodes(self) -> frozenset[str]:
        """Empty while the scheduler cannot be read, which its own check tells."""
        return frozenset() if isinstance(self._cluster, SourceError) else frozenset(self._cluster.nodes)

    @cached_property
    def matrices(self) -> dict[str, Matrix]:
        """What each signal says now. Raises SourceError."""
        step = self.site.policy.numbers.time.step
        asked = {name: signal for name, signal in self.site.policy.signals.items() if signal.query}
        return {name: self.metrics.matrix(s, self.at - step, self.at, step, self.nodes) for name, s in asked.items()}


def patient(site: Site, db: Path) -> Patient:
    return Patient(site, db, make_metrics(site), make_scheduler(site), make_gate(site), lambda: admin_level(site))


def admin_level(site: Site) -> str:
    """What more than reading our account may do in Slurm; empty = nothing, also where nobody keeps accounts."""
    if os.geteuid() == 0:
        return "root"
    conf = site.config.scheduler.conf or os.environ.get("SLURM_CONF")
    env = {"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C"} | ({"SLURM_CONF": str(conf)} if conf else {})
    ask = ("sacctmgr", "-n", "-P", "show", "user", account(), "format=adminlevel")
    try:
        said = process.run(ask, site.config.scheduler.timeout, env).out.strip()
    except OSError:
        return ""
    return "" if said in ("", "None") else said.splitlines()[0]


def account() -> str:
    return pwd.getpwuid(os.geteuid()).pw_name
