"""Prometheus, or whatever speaks its API, as a source of metrics and of checkpoints."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from itertools import accumulate, chain, pairwise
from string import Template
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray
from prometheus_api_client.exceptions import PrometheusApiClientException
from prometheus_api_client.prometheus_connect import PrometheusConnect
from urllib3.util.retry import Retry

from bot.errors import BadReply, SourceError
from bot.http_session import DeadlineSession
from bot.model import AppXid, Checkpoint
from bot.policy import CheckpointGauges, Signal
from bot.ports import Matrix
from bot.signals.score import words
from bot.signals.xid import codes, xid

Labels = Mapping[str, str]
Floats = NDArray[np.float64]
Series = tuple[Labels, Floats]  # (points, 2): Unix seconds, value

SOURCE = "prometheus"
# Prometheus refuses more points per series and asks to decrease the step, which would make it worse (prometheus 1968).
MAX_POINTS = 11_000
GPU_LABELS = ("gpu", "UUID")  # MIG rows of one GPU have both in common
SAVE_LOOK_BACK = 3600  # s in which a save's beginning is looked for while the next one is under way already
SAVE_STEP = 15  # s between looks where a site's query is no plain selector
NO_LABEL = "(no node label)"


@dataclass(frozen=True, slots=True)
class Health:
    """What `doctor` shows. exporters: job → targets, of the site's dcgm jobs."""

    version: str
    exporters: Mapping[str, int]


class PrometheusSource:
    """Implements ports.MetricSource. Every method raises SourceError: Unreachable, AuthFailed or BadReply.

    node_labels: where the node's name stands, the most trusted first; node_pattern: its one group cuts the name out
    of the label's value. dcgm_jobs: the names of the scrape jobs of the GPU exporters. discover: every host is a node,
    by the name that the pattern cuts out, for want of a scheduler that says which are.
    """

    def __init__(
        self,
        url: str,
        session: DeadlineSession,
        node_labels: Sequence[str],
        node_pattern: str,
        dcgm_jobs: Sequence[str],
        discover: bool = False,
    ) -> None:
        self.url = url
        self._session = session
        # The session's own adapter serves every address, so this Retry is never asked; it says what is meant.
        retry = Retry(0, respect_retry_after_header=False)
        self._client = PrometheusConnect(url, session=session, retry=retry, method="POST")
        self.labels = tuple(node_labels)
        self._pattern = re.compile(node_pattern)
        self._discover = discover
        self._dcgm = f"job=~{_quoted(_any_of(dcgm_jobs))}"
        self._shared = _Shared(self.series)

    # -- the port ------------------------------------------------------------------------------------------------------

    def matrix(self, signal: Signal, start: int, end: int, step: int, nodes: Collection[str]) -> Matrix:
        """A row for each step from start to end, both included; what Prometheus leaves out is NaN. Where several series
        belong to one host the largest value is taken."""
        times = np.arange(start, end + 1, step, dtype=np.int64)
        answer = self._shared.get(self._query(signal), start, end, step)
        told = [
            (self.host(labels, nodes), points, code)
            for labels, points in answer
            if (code := _code(signal, labels)) is not None
        ]
        return _merged(signal, told, times)

    def details(self, signal: Signal, at: int, nodes: Collection[str]) -> dict[str, str]:
        """Which GPUs a signal is bad on: node → 'Xid 79 (…) on GPU 3'. Nodes whose GPUs cannot be told are left out, as
        for every signal that is not about a single GPU."""
        if signal.evidence.kind != "threshold" or not signal.query:
            return {}
        told: dict[str, dict[str, set[str]]] = {}
        for labels, points in self.instant(self._query(signal, GPU_LABELS), at):
            code = _code(signal, labels)
            value = np.nan if code is None else float(_plausible(signal, points[-1:, 1], code)[-1])
            if value >= signal.evidence.at and "gpu" in labels:
                text = words(signal, value, float("nan"))
                host, _ = self.host(labels, nodes)
                told.setdefault(host, {}).setdefault(text, set()).add(labels["gpu"])
        return {host: "; ".join(map(_on_gpus, texts.items())) for host, texts in told.items()}

    def xids(self, signal: Signal, at: int, nodes: Collection[str]) -> list[AppXid]:
        """The application's Xids that are new at this moment, each with its GPU: by its number, the UUID beside it."""
        found: dict[tuple[str, str, int], AppXid] = {}
        for labels, points in self.instant(self._query(signal, GPU_LABELS), at):
            shown = _code(signal, labels)
            value = np.nan if shown is None else float(_plausible(signal, points[-1:, 1], shown)[-1])
            (node, known), gpu = self.host(labels, nodes), labels.get("gpu") or labels.get("UUID", "")
            if known and gpu and value > 0 and xid(int(value)).application:
                code, uuid = int(value), labels.get("UUID", "")
                found[node, gpu, code] = AppXid(node, gpu, code, at, uuid)
        return list(found.values())

    def check(self) -> Health:
        """Reachable, which version, and whether the site's dcgm jobs exist."""
        found = self.instant(f"count by (job) (up{{{self._dcgm}}})")
        return Health(self._version(), {labels["job"]: int(points[-1, 1]) for labels, points in found})

    # -- asking --------------------------------------------------------------------------------------------------------

    def series(self, query: str, start: int, end: int, step: int) -> Iterator[Series]:
        """The answer over a range; a long one comes in several parts."""
        for first in range(start, end + 1, step * MAX_POINTS):
            last = min(end, first + step * (MAX_POINTS - 1))
            ask = partial(self._client.custom_query_range, query, _moment(first), _moment(last), str(step))
            yield from _asked(ask)

    def instant(self, query: str, at: int | None = None) -> list[Series]:
        """The answer at one moment, the server's now if none is given."""
        return _asked(partial(self._client.custom_query, query, {"time": str(at)} if at else {}))

    def _version(self) -> str:
        """Empty where the server does not tell: VictoriaMetrics, Thanos and Mimir need not."""
        try:
            told = self._session.get(f"{self.url}/api/v1/status/buildinfo").json()
            return str(told["data"].get("version", ""))
        except (BadReply, ValueError, KeyError, AttributeError):
            return ""

    def _query(self, signal: Signal, more: Sequence[str] = ()) -> str:
        return Template(signal.query).safe_substitute(
            by=", ".join((*self.labels, *more)),
            gpu=", ".join((*self.labels, *GPU_LABELS)),
            dcgm=self._dcgm,
        )

    def host(self, labels: Labels, nodes: Collection[str]) -> tuple[str, bool]:
        """(name, it is a node of the scheduler). The first label that leads to a node decides, because Hostname may be
        the exporter's pod (gpu-operator 242); a host that leads to none keeps its label as it is."""
        present = [labels[label] for label in self.labels if labels.get(label)]
        for value in present:
            found = self._pattern.search(value)
            if found and found[1] in nodes:
                return found[1], True
        named = self._pattern.search(present[0]) if present and self._discover else None
        if named:
            return named[1], True
        return (present[0] if present else NO_LABEL), False


Span = tuple[int, int, int]
SPANS = 2  # a look asks over two: the window, and the past it is compared with


class _Shared:
    """Answers over the spans of time asked for last: signals with the same query ask once, whichever comes first."""

    def __init__(self, ask: Callable[[str, int, int, int], Iterable[Series]]) -> None:
        self._ask = ask
        self._lock = Lock()
        self._answers: dict[Span, dict[str, Future[list[Series]]]] = {}

    def get(self, query: str, start: int, end: int, step: int) -> list[Series]:
        """Raises SourceError, to everybody who waits for the same answer."""
        answers = self._over((start, end, step))
        with self._lock:
            first = query not in answers
            answer = answers.setdefault(query, Future())
        if first:
            try:
                answer.set_result(list(self._ask(query, start, end, step)))
            except SourceError as error:
                answer.set_exception(error)
                with self._lock:
                    answers.pop(query, None)  # who comes later asks again
        return answer.result()

    def _over(self, span: Span) -> dict[str, Future[list[Series]]]:
        with self._lock:
            answers = self._answers.pop(span, {})
            self._answers[span] = answers  # the newest last
            while len(self._answers) > SPANS:
                self._answers.pop(next(iter(self._answers)))
            return answers


def _asked(ask: Callable[[], Any]) -> list[Series]:
    """Series in numbers. The session has refused every answer that is no data; what is left may still be malformed."""
    try:
        found = [(s["metric"], s["values"] if "values" in s else [s["value"]]) for s in ask()]
        points = _numbers([points for _, points in found])
        return [(labels, part) for (labels, _), part in zip(found, points, strict=True)]
    except (ValueError, KeyError, TypeError, PrometheusApiClientException) as error:
        raise BadReply(SOURCE, f"an answer that cannot be understood: {type(error).__name__}: {error}") from error


def _numbers(series: Sequence[Sequence[Sequence[float | str]]]) -> Iterator[Floats]:
    """(points, 2) of each, read in one go: an array for every series costs more than its numbers do."""
    pairs = list(chain.from_iterable(series))
    if any(len(pair) != 2 for pair in pairs):
        raise ValueError("a point that is not a time and a value")
    numbers = np.fromiter(map(float, chain.from_iterable(pairs)), np.float64, 2 * len(pairs)).reshape(-1, 2)
    ends = [0, *accumulate(map(len, series))]
    return (numbers[begin:end] for begin, end in pairwise(ends))


def _moment(at: int) -> datetime:
    """With a zone: the library asks a datetime for its timestamp, and a naive one would be taken for local time."""
    return datetime.fromtimestamp(at, UTC)


def _code(signal: Signal, labels: Labels) -> float | None:
    """The Xid that a series counts, NaN where its labels tell of none; None: the series is not this signal's."""
    if signal.value_label not in labels:
        return np.nan
    code = int(labels[signal.value_label]) if labels[signal.value_label].isdecimal() else 0
    return code if code in codes(signal.xid_action) else None


def _plausible(signal: Signal, values: Floats, code: float | Floats) -> Floats:
    """Blanks and impossible values are NaN; what counts an Xid is that Xid. code: for all values, or one for each."""
    values = np.where(~np.isnan(code) & (values > 0), code, values)
    possible = (values >= signal.blank_below) & (values <= signal.blank_above)
    return np.where(possible, values, np.nan)


def _on_gpus(told: tuple[str, set[str]]) -> str:
    text, gpus = told
    return f"{text} on GPU{'s' if len(gpus) > 1 else ''} {', '.join(sorted(gpus, key=lambda gpu: (len(gpu), gpu)))}"


def _merged(signal: Signal, told: Sequence[tuple[tuple[str, bool], Floats, float]], times: NDArray[np.int64]) -> Matrix:
    """Series under their hosts, one column each. told: host and whether it is a node, points, the Xid."""
    known = dict(host for host, _, _ in told)
    column = {host: number for number, host in enumerate(known)}
    values = np.full((len(times), len(known)), np.nan)
    if told:
        lengths = [len(points) for _, points, _ in told]
        columns, code = (
            np.repeat(of_each, lengths) for of_each in ([column[h] for (h, _), _, _ in told], [c for *_, c in told])
        )
        points = np.concatenate([points for _, points, _ in told])
        step = int(times[1] - times[0]) if len(times) > 1 else 1
        rows = np.rint((points[:, 0] - times[0]) / step).astype(np.intp)
        asked = (rows >= 0) & (rows < len(times))
        np.fmax.at(values, (rows[asked], columns[asked]), _plausible(signal, points[:, 1], code)[asked])
    return Matrix(tuple(known), tuple(known.values()), times, values)


# -- PromQL ------------------------------------------------------------------------------------------------------------


def _any_of(names: Collection[str]) -> str:
    return "|".join(map(re.escape, names))


def _quoted(text: str) -> str:
    """A PromQL string: Go's escapes, which JSON's are a part of."""
    return json.dumps(text, ensure_ascii=False)


# -- checkpoints -------------------------------------------------------------------------------------------------------

_JOB = re.compile(r'(\w+)\s*=~?\s*"\$job"')


class PrometheusCheckpoints:
    """Implements ports.CheckpointSource on the trainer's gauges; None for the gauges measures nothing."""

    def __init__(self, metrics: PrometheusSource, gauges: CheckpointGauges | None) -> None:
        self._metrics = metrics
        self._gauges = gauges

    def checkpoints(self, at: int, jobs: Mapping[str, Sequence[str]]) -> Sequence[Checkpoint]:
        """Raises SourceError."""
        names = _unshared(jobs)
        if not names or self._gauges is None:
            return ()
        steps, ends = self._gauge(self._gauges.step, at, names), self._gauge(self._gauges.completed, at, names)
        begun = self._gauge(self._gauges.started, at, names, SAVE_LOOK_BACK)
        saved = [name for name in names if len(steps[name]) or len(ends[name])]
        first = {job: next((name for name in own if name in saved), None) for job, own in jobs.items()}
        return [_save(job, steps[name], begun[name], ends[name]) for job, name in first.items() if name]

    def _gauge(self, template: str, at: int, names: Sequence[str], back: int = 0) -> dict[str, Floats]:
        """Name → its positive values, of all processes that export it. One question for all names where the label that
        holds the name survives in the answer, else one for each."""
        label = _JOB.search(template)
        if label:
            found = self._ask(_JOB.sub(lambda m: f"{m[1]}=~{_quoted(_any_of(names))}", template), at, back)
            if all(label[1] in labels for labels, _ in found):
                return {name: _positive(p for labels, p in found if labels[label[1]] == name) for name in names}
        return {name: _positive(p for _, p in self._ask(_for_one(template, name), at, back)) for name in names}

    def _ask(self, query: str, at: int, back: int) -> list[Series]:
        """What stood at the moment, or every sample since `back` seconds before it."""
        past = f"{query}[{back}s]" if query.endswith("}") else f"({query})[{back}s:{SAVE_STEP}s]"
        return self._metrics.instant(past if back else query, at)


def _unshared(jobs: Mapping[str, Sequence[str]]) -> list[str]:
    """The names that belong to one run only: one that two runs share tells nothing about either."""
    runs: dict[str, set[frozenset[str]]] = {}
    for job, names in jobs.items():
        for name in names:
            runs.setdefault(name, set()).add(frozenset(names) - {job})
    return [name for name, sharing in runs.items() if len(sharing) == 1]


def _for_one(template: str, name: str) -> str:
    exact = _JOB.sub(lambda m: f"{m[1]}={_quoted(name)}", template)
    return exact.replace("$job", _quoted(name)[1:-1])


def _positive(parts: Iterable[Floats]) -> Floats:
    """A gauge that was never set reads 0; DCGM is not the only one with blanks."""
    values = np.concatenate([np.empty(0), *(points[:, 1] for points in parts)])
    return values[(values > 0) & (values < 1e12)]


def _save(job: str, steps: Floats, begun: Floats, ends: Floats) -> Checkpoint:
    """The newest save that is complete. While the next one is under way the gauge for the start tells of that, so the
    newest start before the end is taken."""
    end = ends.max() if len(ends) else None
    before = begun[begun <= end] if end is not None else begun[:0]
    return Checkpoint(job, _newest(steps), _newest(before), _newest(ends))


def _newest(values: Floats) -> int | None:
    return int(values.max()) if len(values) else None
