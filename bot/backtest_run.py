"""A backtest from its options to its outcome: where the metrics are, what the files say, where it stopped last."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from pydantic import ValidationError

from bot import __version__
from bot import policy as policies
from bot.backtest import Alarm, Replayed, alarms, peak_held, replay, stopped
from bot.backtest_files import Label, Run, StorageLabel, labels, moment, runs, storage_labels
from bot.backtest_notes import Notes
from bot.backtest_report import Report, report
from bot.config import ENV, PrometheusSite, path_of
from bot.errors import SourceError, UsageError
from bot.http_session import DeadlineSession
from bot.plans import STEPS
from bot.policy import Match, Policy, SessionRule
from bot.ports import MetricSource
from bot.replay import ReplayObserver, spans
from bot.site import read_site
from bot.sources.discover import GPUS, exporters, node_labels
from bot.sources.prometheus import PrometheusSource
from bot.sources.storage import NFS, PrometheusStorage
from bot.storage.numbers import MountFacts
from bot.storage.replay import StorageReplay
from bot.storage.window import StorageWindow
from bot.yamlfile import seconds
from playbooks import load as load_playbooks

TIMEOUT = 300  # s for one answer: a day of a large fleet is more than a tick's look
PAUSE = 86_400  # s of the past between two notes of how far it has come


@dataclass(frozen=True, slots=True)
class Asked:
    """Everything that a backtest depends on. again: forget where the last one stopped."""

    prometheus: PrometheusSite
    policy: Policy
    start: int
    end: int
    runs: Sequence[Run]
    labels: Sequence[Label]
    storage_labels: Sequence[StorageLabel] = ()
    facts: MountFacts = MountFacts()
    alarms: Path | None = None
    against: Asked | None = None
    again: bool = False

    @property
    def nodes(self) -> set[str]:
        """Every node that is named; the labels that lead to them are taken for the nodes' labels."""
        return {node for run in self.runs for node in run.nodes} | {label.node for label in self.labels}

    @property
    def name(self) -> str:
        """The same for the same question, so that it can go on: all that changes what is decided."""
        prom = self.prometheus
        where = (prom.url, prom.node_labels, prom.node_pattern, prom.dcgm_jobs, sorted(self.nodes))
        how = (__version__, self.policy.hash, self.facts.model_dump(mode="json"))
        parts = (where, how, self.start, self.end, [asdict(run) for run in self.runs])
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class Outcome:
    alarms: Sequence[Alarm]
    report: Report

    def alarms_json(self) -> str:
        """What others read: the reasons are for people."""
        rows = [{name: value for name, value in asdict(a).items() if name != "why"} for a in self.alarms]
        return json.dumps(rows, indent=1)

    def json(self, other: Outcome | None = None) -> str:
        figures = self.report.as_json() | ({"against": other.report.as_json()} if other else {})
        return json.dumps(figures, indent=2)


# -- what is asked -----------------------------------------------------------------------------------------------------


def asked(config: str | None, options: Mapping[str, str | bool | None]) -> Asked:
    """Raises ConfigError or UsageError for what cannot be read."""
    other = options["against"]
    site, policy, facts = _site(config)
    prometheus = _prometheus(site, str(options["url"] or ""))
    step = _step(str(options["step"]))
    start, end = (
        _moment(str(options[name]), f"--{word}") // step * step for name, word in (("start", "from"), ("end", "to"))
    )
    if end <= start:
        raise UsageError(f"--to {options['end']} does not lie after --from {options['start']}")
    return Asked(
        prometheus=prometheus,
        policy=watching(policy, step),
        start=start,
        end=end,
        runs=runs(Path(str(options["sessions"]))) if options["sessions"] else (),
        labels=labels(Path(str(options["labels"]))) if options["labels"] else (),
        storage_labels=storage_labels(Path(str(options["storage_labels"]))) if options.get("storage_labels") else (),
        facts=facts,
        alarms=_writable(str(options["alarms"])) if options["alarms"] else None,
        against=_over(prometheus, str(other), options) if other else None,
        again=bool(options["again"]),
    )


def _over(prometheus: PrometheusSite, other: str, options: Mapping[str, str | bool | None]) -> Asked:
    """The other site's policy, over the same metrics: asked where and as the first are."""
    return replace(asked(other, {**options, "against": None, "url": prometheus.url}), prometheus=prometheus)


def _site(config: str | None) -> tuple[PrometheusSite | None, Policy, MountFacts]:
    """The site's, or the shipped policy where no site file is named or lies here."""
    if config or os.environ.get(ENV) or path_of(None).exists():
        site = read_site(path_of(config))
        return site.config.prometheus, site.policy, site.config.storage
    return None, policies.build(playbooks=load_playbooks(None, STEPS)), MountFacts()


def _prometheus(site: PrometheusSite | None, url: str) -> PrometheusSite:
    """The site's, at another address where one is given."""
    if not url:
        if site is None:
            raise UsageError("no metrics to look at", "give --prometheus URL, or a site file")
        return site
    try:
        given = PrometheusSite(url=url.rstrip("/"))
    except ValidationError as error:
        raise UsageError(f"--prometheus: {error.errors()[0]['msg'].removeprefix('Value error, ')}") from error
    return site.model_copy(update={"url": given.url}) if site else given


def watching(policy: Policy, step: int) -> Policy:
    """The same policy looked at in other steps, which withholds whatever it would do, for every run of the past."""
    time = policy.numbers.time.model_copy(update={"step": step})
    numbers = policy.numbers.model_copy(update={"time": time})
    everyone = (SessionRule(match=Match(name="*")),)
    return policy.model_copy(update={"numbers": numbers, "sessions": everyone, "write_mode": "observe"})


def _writable(text: str) -> Path:
    """Said before hours of replaying and not after them."""
    path = Path(text)
    if not path.parent.is_dir() or path.is_dir():
        raise UsageError(f"--alarms {path}: no file can be written there")
    return path


def _moment(text: str, option: str) -> int:
    try:
        return moment(text)
    except ValueError as error:
        raise UsageError(f"{option}: {error}") from error


def _step(text: str) -> int:
    try:
        step = seconds(text)
    except ValueError as error:
        raise UsageError(f"--step: {error}") from error
    if not isinstance(step, int) or step <= 0:
        raise UsageError(f"--step {text} is no time between two looks", "write it like 60s")
    return step


# -- running -----------------------------------------------------------------------------------------------------------


def run(wanted: Asked, progress: Callable[[int], None]) -> Outcome:
    """Raises SourceError; what was done by then is kept, and the same question goes on from there."""
    source = _source(wanted)
    return outcome(
        wanted, source, progress, Notes(wanted.name, wanted.start, again=wanted.again), _counters(wanted, source)
    )


Counters = Callable[[int, int], StorageWindow]  # the mounts' counters from start to end, both included


def outcome(
    wanted: Asked,
    source: MetricSource,
    progress: Callable[[int], None],
    notes: Notes | None = None,
    counters: Counters | None = None,
) -> Outcome:
    """Raises SourceError. counters None: storage is not measured."""
    observer = _observer(wanted, source, counters)
    done = notes.read() if notes else Replayed([], wanted.start)
    noted = done.until

    def passed(at: int) -> None:
        nonlocal noted
        progress(at)
        if notes and done.until - noted >= PAUSE:
            notes.write(done)
            noted = done.until

    try:
        replay(observer, wanted.policy, done, passed)
    except SourceError:
        if notes:
            notes.write(done)
        raise
    if notes:
        notes.forget()
    found = alarms(done, wanted.policy)
    return Outcome(
        found,
        report(
            found,
            wanted.labels,
            wanted.start,
            wanted.end,
            wanted.policy.numbers.time.step,
            peak_held=peak_held(done),
            stopped=stopped(done),
            stalls=wanted.storage_labels,
        ),
    )


def _observer(wanted: Asked, source: MetricSource, counters: Counters | None) -> ReplayObserver:
    step = wanted.policy.numbers.time.step
    last = wanted.end - step
    storage = None
    if counters:
        numbers = wanted.policy.storage.model_copy(update={"step": step})
        storage = StorageReplay(counters, spans(wanted.runs), numbers, wanted.start, last, wanted.facts)
    return ReplayObserver(source, wanted.runs, wanted.policy, wanted.start, last, storage=storage)


def _counters(wanted: Asked, source: PrometheusSource) -> Counters | None:
    """None where no node told of a mount at any of these moments: there would be nothing to ask for."""
    if not any(source.instant(f"count({NFS}operations_requests_total)", at) for at in _moments(wanted)):
        return None
    nodes = {node for run in wanted.runs for node in run.nodes}
    numbers = wanted.policy.storage.model_copy(update={"step": wanted.policy.numbers.time.step})
    mounts = PrometheusStorage(source, source.labels, numbers, wanted.facts)
    return lambda start, end: mounts.window(start, end, nodes)


def _moments(wanted: Asked) -> list[int]:
    return [wanted.end - (wanted.end - wanted.start) * part // 8 for part in range(1, 8)]


def _source(wanted: Asked) -> PrometheusSource:
    """Its jobs and labels are taken from what the metrics show, where the site did not say."""
    prom = wanted.prometheus
    session = DeadlineSession(TIMEOUT, token_file=prom.token_file, ca_file=prom.ca_file)
    nodes = wanted.nodes
    looking = PrometheusSource(prom.url, session, prom.node_labels, prom.node_pattern, prom.dcgm_jobs)
    moments = _moments(wanted)
    jobs = next((found for at in moments if (found := exporters(looking, at))), [])
    shown = [labels for at in moments[:1] for labels, _ in looking.instant(f"max without (gpu, UUID) ({GPUS})", at)]
    default = PrometheusSite.model_fields["node_labels"].default
    order = node_labels(shown, nodes) if nodes and prom.node_labels == default else prom.node_labels
    return PrometheusSource(prom.url, session, order, prom.node_pattern, jobs or prom.dcgm_jobs, discover=True)
