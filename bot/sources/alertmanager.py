"""Alertmanager, both ways: what its webhook told as marks of nodes; its silences; and alerts of ours posted to it."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol, TypeVar

from pydantic import BaseModel, TypeAdapter, ValidationError

from bot.alerts import Alert, Moment
from bot.errors import BadReply, SourceError, Unreachable
from bot.http_session import DeadlineSession
from bot.model import Mark

log = logging.getLogger(__name__)

SOURCE = "alertmanager"
SIGNAL = "alert"

Labels = Mapping[str, str]
Host = Callable[[Labels, Collection[str]], tuple[str, bool]]  # PrometheusSource.host
Fired = Callable[[int, int], Sequence[Alert]]  # Inbound.alerts


class AlertMarks:
    """Implements ports.MarkSource on the alerts that were told. Those that lead to no node of the scheduler give no
    mark."""

    name: str = SOURCE
    signals: Collection[str] = (SIGNAL,)

    def __init__(self, fired: Fired, host: Host) -> None:
        self._fired, self._host = fired, host

    def marks(self, since: int, now: int, nodes: Collection[str]) -> Sequence[Mark]:
        found = ((self._host(alert.labels, nodes), alert) for alert in self._fired(since, now))
        return [_mark(alert, node, now) for (node, known), alert in found if known]


def _mark(alert: Alert, node: str, now: int) -> Mark:
    """A start that lies ahead is a clock that does: it fired when we heard of it at the latest."""
    begun = min(alert.starts, alert.first)
    until = max(begun, min(alert.over, now))
    return Mark(begun, node, SIGNAL, until=until, text=alert.text, provenance="claimed")


# -- silences ----------------------------------------------------------------------------------------------------------


# What Go's regular expressions spell otherwise than Python's.
_CLASSES = {"alpha": "A-Za-z", "digit": "0-9", "alnum": "0-9A-Za-z", "lower": "a-z", "upper": "A-Z", "space": r"\s",
            "word": r"\w", "xdigit": "0-9A-Fa-f"}  # fmt: skip
_CLASS = re.compile(r"\[:(\w+):\]")


class Matcher(BaseModel):
    """One condition on a label, as Alertmanager reads it: a missing label is an empty one, and a regular expression
    must match the whole value."""

    name: str
    value: str
    isRegex: bool = False
    isEqual: bool = True  # missing before 0.22

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        """Raises re.error for what Python does not understand."""
        known = _CLASS.sub(lambda found: _CLASSES.get(found[1], found[0]), self.value)
        return re.compile(known.replace(r"\z", r"\Z"), re.ASCII)

    def matches(self, labels: Labels) -> bool:
        value = labels.get(self.name, "")
        same = bool(self.pattern.fullmatch(value)) if self.isRegex else value == self.value
        return same == self.isEqual


class _Status(BaseModel):
    state: str


class Silence(BaseModel):
    """One silence: every matcher must match."""

    id: str
    matchers: tuple[Matcher, ...]
    startsAt: Moment
    endsAt: Moment
    createdBy: str = ""
    comment: str = ""
    status: _Status

    def matches(self, labels: Labels) -> bool:
        return bool(self.matchers) and all(matcher.matches(labels) for matcher in self.matchers)


_SILENCES = TypeAdapter(tuple[Silence, ...])


@dataclass(frozen=True, slots=True)
class Silences:
    """The active silences of one moment. unread: those whose regular expressions cannot be applied here; they silence
    nothing."""

    active: tuple[Silence, ...] = ()
    unread: tuple[str, ...] = ()

    def matching(self, labels: Labels) -> Silence | None:
        """The silence that these labels fall under; of several the one that lasts longest."""
        return max((s for s in self.active if s.matches(labels)), key=lambda s: s.endsAt, default=None)


def read_silences(body: Any) -> Silences:
    """Pure. Raises ValueError for what is no list of silences."""
    try:
        found = _SILENCES.validate_python(body)
    except ValidationError as error:
        first = error.errors()[0]
        raise ValueError(f"silences: {'.'.join(map(str, first['loc']))}: {first['msg']}") from error
    active = [silence for silence in found if silence.status.state == "active"]
    faults = {silence.id: _fault(silence) for silence in active}
    return Silences(
        tuple(silence for silence in active if not faults[silence.id]),
        tuple(f"silence {name}: {fault}" for name, fault in faults.items() if fault),
    )


def _fault(silence: Silence) -> str:
    """What Python does not understand of its regular expressions; empty when nothing."""
    for matcher in silence.matchers:
        try:
            _ = matcher.pattern if matcher.isRegex else None
        except re.error as error:
            return f"{matcher.name}=~{matcher.value!r} cannot be applied here: {error}"
    return ""


# -- its API -----------------------------------------------------------------------------------------------------------


class Api(Protocol):
    """What the pager needs of an Alertmanager. Both raise SourceError."""

    def silences(self) -> Silences: ...

    def post(self, alerts: Sequence[Mapping[str, Any]]) -> None: ...


class Alertmanager:
    """API v2. Every method raises SourceError: Unreachable, AuthFailed or BadReply with Alertmanager's own words."""

    def __init__(self, url: str, session: DeadlineSession) -> None:
        self.url, self._api, self._session = url, f"{url}/api/v2", session

    def silences(self) -> Silences:
        try:
            return read_silences(self._session.get(f"{self._api}/silences").json())
        except ValueError as error:
            raise BadReply(SOURCE, str(error)) from error

    def post(self, alerts: Sequence[Mapping[str, Any]]) -> None:
        """Those it can use are taken even when others are refused."""
        self._session.post(f"{self._api}/alerts", json=list(alerts))


T = TypeVar("T")


class Several:
    """All Alertmanagers of a site as one, as Prometheus does it: each is told of everything, because they share
    silences and who was woken, and not alerts. Asked at once, so that one that hangs holds up no other. Raises
    SourceError when none could be used; while one can, the others are in `problems`."""

    def __init__(self, each: Sequence[Alertmanager]) -> None:
        self._each = tuple(each)
        self.problems: Mapping[str, str] = {}  # URL → what was wrong with it when it was last asked

    def silences(self) -> Silences:
        """What any of them silences."""
        told = self._all(Alertmanager.silences)
        active = {silence.id: silence for found in told for silence in found.active}
        return Silences(tuple(active.values()), tuple(dict.fromkeys(why for found in told for why in found.unread)))

    def post(self, alerts: Sequence[Mapping[str, Any]]) -> None:
        self._all(lambda one: one.post(alerts))

    def _all(self, ask: Callable[[Alertmanager], T]) -> list[T]:
        with ThreadPoolExecutor(len(self._each)) as pool:
            asked = [(one.url, pool.submit(ask, one)) for one in self._each]
        errors = {url: error for url, answer in asked if isinstance(error := answer.exception(), SourceError)}
        if len(errors) == len(asked) == 1:
            raise next(iter(errors.values()))
        problems = {url: error.message.removeprefix(f"{SOURCE}: ") for url, error in errors.items()}
        if len(errors) == len(asked):
            raise Unreachable(SOURCE, "; ".join(f"{url}: {why}" for url, why in problems.items()))
        for url in problems.keys() ^ self.problems.keys():
            log.warning("%s: %s", url, problems.get(url, "all is well again"))
        self.problems = problems
        return [answer.result() for url, answer in asked if url not in errors]
