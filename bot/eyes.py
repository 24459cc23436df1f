"""The observer of a site: every source that its file names, put together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from zoneinfo import ZoneInfo

from bot.http_session import DeadlineSession
from bot.model import Incident, Job, Session
from bot.observe import LiveObserver
from bot.ports import CheckpointSource, JobPlace, MarkSource, Scheduler
from bot.site import Site
from bot.sources.alertmanager import AlertMarks
from bot.sources.checkpoint_dir import DirectoryCheckpoints, directory_places
from bot.sources.checkpoints import FirstThatKnows
from bot.sources.job_log import JobLog, job_places
from bot.sources.kernel_log import kernel_log
from bot.sources.prometheus import PrometheusCheckpoints, PrometheusSource
from bot.sources.pushed import PushedCheckpoints
from bot.sources.reader import Reader
from bot.sources.storage import PrometheusStorage
from bot.state import State
from bot.storage.window import spans
from store.cursors import Cursors
from store.inbound import Inbound
from store.store import Store


def make_metrics(site: Site, session: DeadlineSession | None = None) -> PrometheusSource:
    prom = site.config.prometheus
    asked = session or DeadlineSession(prom.timeout, token_file=prom.token_file, ca_file=prom.ca_file)
    return PrometheusSource(prom.url, asked, prom.node_labels, prom.node_pattern, prom.dcgm_jobs)


class Eyes:
    """What a site's observer is made of. close: its reading child ends."""

    def __init__(self, site: Site, scheduler: Scheduler, store: Store) -> None:
        self._site, self._store = site, store
        self._reader = Reader()
        self._inbound = Inbound(store.database)
        metrics = make_metrics(site)
        zone = ZoneInfo(site.config.site.timezone)
        self._job_log = JobLog(self._reader, (zone,), self._places)
        savers = FirstThatKnows(self._savers(metrics))
        self.observer = LiveObserver(
            metrics=metrics,
            scheduler=scheduler,
            checkpoints=savers,
            saved=lambda: savers.told,
            policy=site.policy,
            watch=lambda: watched(store.state()),
            details=metrics.details,
            logs=tuple(self._logs(metrics, zone)),
            notes=lambda now: self._job_log.notes(now, self._places()),
            growth=self._job_log.growth,
            storage=PrometheusStorage(
                metrics, site.config.prometheus.node_labels, site.policy.storage, site.config.storage
            ),
            spans=lambda since: spans(store.state().all(Session), since),
        )

    def close(self) -> None:
        self._reader.close()

    def _savers(self, metrics: PrometheusSource) -> list[CheckpointSource]:
        """The trainer's own word first."""
        gauges = next((rule.checkpoint.prometheus for rule in self._site.policy.sessions), None)
        savers: list[CheckpointSource] = [PrometheusCheckpoints(metrics, gauges)]
        if self._site.config.http:
            savers.append(PushedCheckpoints(self._inbound.markers))
        if any(rule.checkpoint.directory for rule in self._site.policy.sessions):
            places = lambda: directory_places(self._jobs(), self._site.policy, self._session)  # noqa: E731
            savers.append(DirectoryCheckpoints(self._reader, places))
        return savers

    def _logs(self, metrics: PrometheusSource, zone: ZoneInfo) -> list[MarkSource]:
        logs: list[MarkSource] = []
        kernel = self._site.config.logs.kernel_log
        if kernel.journal or kernel.command or kernel.syslog:
            cursors = Cursors(self._store.database)
            told_in = ZoneInfo(kernel.timezone) if kernel.timezone else zone
            logs.append(
                kernel_log(
                    cursors,
                    told_in,
                    journal=kernel.journal,
                    syslog=kernel.syslog,
                    command=kernel.command,
                    timeout=kernel.timeout,
                    pattern=self._site.config.prometheus.node_pattern,
                )
            )
        if self._site.config.http:
            logs.append(AlertMarks(self._inbound.alerts, metrics.host))
        if any(rule.log for rule in self._site.policy.sessions):
            logs.append(self._job_log)
        return logs

    # -- the jobs' own files -------------------------------------------------------------------------------------------

    def _jobs(self) -> Sequence[Job]:
        return self.observer.jobs

    def _places(self) -> Mapping[str, JobPlace]:
        if not any(rule.log for rule in self._site.policy.sessions):
            return {}
        return job_places(self._jobs(), self._site.policy, self._session, hanging(self._store.state()))

    def _session(self, job: str) -> str | None:
        found = self._store.state().session_of(job)
        return found.name if found else None


def watched(state: State) -> Mapping[str, Sequence[str]]:
    """Jobs of live sessions with every name a trainer may export them under."""
    return {job: (job, session.job_name, session.name) for session in state.live_sessions() for job in session.jobs}


def hanging(state: State) -> set[str]:
    """Jobs of the sessions that stand still: their logs are worth reading though nothing has ended."""
    stuck = {i.subject for i in state.all(Incident) if i.kind == "session_hung" and i.closed is None}
    return {job for session in state.live_sessions() if session.name in stuck for job in session.jobs}
