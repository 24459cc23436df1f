"""Whose signals are looked at: a site with all that its file names, or an address alone. Writes nothing."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bot.app import make_scheduler, open_store
from bot.config import PrometheusSite, _url
from bot.errors import UsageError
from bot.eyes import Eyes
from bot.http_session import DeadlineSession
from bot.model import Action, Cluster, Next, Node, Unclear
from bot.observe import LiveObserver
from bot.policy import Policy
from bot.ports import MetricSource, Scheduler
from bot.site import Site
from bot.sources.discover import exporters
from bot.sources.kernel_log import KernelLog
from bot.sources.prometheus import PrometheusCheckpoints, PrometheusSource
from bot.survey import Survey, survey

DAY = 86_400
HOUR = 3600
SEEN = 3  # looks at which a GPU count must be seen: a single one may be garbage


class Found:
    """Implements ports.Scheduler for a cluster of which only the metrics are known: nodes and their GPUs, no jobs."""

    def __init__(self, source: MetricSource, policy: Policy) -> None:
        self._source, self._policy = source, policy

    def snapshot(self, now: int, watch: Collection[str] = ()) -> Cluster:
        counted = next((s for s in self._policy.signals.values() if s.evidence.kind == "missing" and s.query), None)
        nodes: dict[str, Node] = {}
        if counted:
            seen = self._source.matrix(counted, now - DAY, now, HOUR, ())
            for column, host in enumerate(seen.hosts):
                nodes[host] = Node(host, "UP", up=True, open=True, gpus=_usual(seen.values[:, column]))
        return Cluster("", now, nodes, {})

    def next_command(self, action: Action, cluster: Cluster) -> Next:
        return Unclear("there is no scheduler")


def _usual(counts: NDArray[np.float64]) -> int | None:
    """The highest count that was seen more than by chance; None where there was none."""
    known = np.sort(counts[counts > 0])
    return int(known[-min(SEEN, len(known))]) if len(known) else None


class _Forgetful:
    """Where the bot's reader is; how far this one comes is nobody's business."""

    def __init__(self, log: KernelLog) -> None:
        self._kept = log.cursors

    def get(self, name: str) -> str | None:
        return self._kept.get(name)

    def put(self, name: str, value: str) -> None:
        return


def of_url(url: str, policy: Policy) -> Survey:
    """Without a site file: exporters are found by what they export, nodes by their metrics. Raises SourceError."""
    try:
        site = PrometheusSite(url=_url(url))
    except ValueError as error:
        raise UsageError(f"--prometheus: {url!r} is no http(s) URL", "write it like http://prom:9090") from error
    session = DeadlineSession(site.timeout)
    looking = PrometheusSource(site.url, session, site.node_labels, site.node_pattern, site.dcgm_jobs)
    jobs = exporters(looking) or site.dcgm_jobs
    source = PrometheusSource(site.url, session, site.node_labels, site.node_pattern, jobs, discover=True)
    saves = PrometheusCheckpoints(source, None)
    observer = LiveObserver(source, Found(source, policy), saves, policy, dict, details=source.details)
    return survey(observer, source, site.url, scheduled=False)


def of_site(site: Site, db: str | None, url: str | None, scheduler: Scheduler | None = None) -> Survey:
    """With everything that the site file names."""
    if url:
        prom = site.config.prometheus.model_copy(update={"url": url.rstrip("/")})
        site = replace(site, config=site.config.model_copy(update={"prometheus": prom}))
    with _eyes(site, db, scheduler or make_scheduler(site)) as eyes:
        source = eyes.observer.metrics
        assert isinstance(source, PrometheusSource)
        return survey(eyes.observer, source, source.url)


@contextmanager
def _eyes(site: Site, db: str | None, scheduler: Scheduler) -> Iterator[Eyes]:
    """The bot's own eyes on its database, or on an empty one where it has none that we may use."""
    path = Path(db or site.config.site.database)
    with tempfile.TemporaryDirectory() as empty:
        usable = path.exists() and os.access(path, os.W_OK) and os.access(path.absolute().parent, os.W_OK)
        store = open_store(site, str(path if usable else Path(empty) / "xidbot.db"))
        eyes = Eyes(site, scheduler, store)
        for log in eyes.observer.logs:
            if isinstance(log, KernelLog):
                log.cursors = _Forgetful(log)
        try:
            yield eyes
        finally:
            eyes.close()
            store.close()
