"""What Alertmanager says in its webhook, as data. Pure."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, Field, TypeAdapter, ValidationError

from bot.moments import rfc3339

OURS = "xidbot"  # label `source` of the pages we send
STALE_AFTER = 86_400  # s without a word; Alertmanager repeats what fires each 4 h unless told otherwise


@dataclass(frozen=True, slots=True)
class Alert:
    """One firing of an alert. fingerprint and starts name it. ends None: it fires as far as we know.

    first, told: when we first and last heard of it. cut: other alerts of its group that the last webhook left out.
    """

    fingerprint: str
    starts: int
    ends: int | None
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    first: int = 0
    told: int = 0
    cut: int = 0

    @property
    def name(self) -> str:
        return self.labels.get("alertname", "an alert without a name")

    @property
    def over(self) -> int:
        """When it ended, or will be thought to have ended if nothing more is heard."""
        return self.ends if self.ends is not None else self.told + STALE_AFTER

    @property
    def text(self) -> str:
        """`NodeDown: node-03 does not answer (Alertmanager)`."""
        said = (self.annotations.get(key, "").strip() for key in ("summary", "message", "description"))
        about = next((words.splitlines()[0][:200] for words in said if words), "")
        more = f"; {self.cut} more of its group were cut off" if self.cut else ""
        return f"{self.name}{': ' if about else ''}{about} (Alertmanager{more})"


@dataclass(frozen=True, slots=True)
class Webhook:
    """alerts: without our own pages, of which there were `own`. cut: how many the sender left out (its max_alerts).
    problems: alerts that could not be read, each with where and what."""

    alerts: tuple[Alert, ...]
    own: int = 0
    cut: int = 0
    problems: tuple[str, ...] = ()


def _moment(text: object) -> int:
    """Unix seconds of RFC 3339, whose fraction Go writes with up to nine digits."""
    if not isinstance(text, str):
        raise ValueError("is no time; RFC 3339 is expected")
    return int(rfc3339(text) // 1)


Moment = Annotated[int, BeforeValidator(_moment)]
ZERO = _moment("0001-01-01T00:00:00Z")  # Go's "no time"


class _Alert(BaseModel):
    status: Literal["firing", "resolved"]
    labels: dict[str, str] = Field(min_length=1)
    annotations: dict[str, str] = {}
    startsAt: Moment
    endsAt: Moment = ZERO
    fingerprint: str = Field(default="", max_length=200)


class _Webhook(BaseModel):
    """What of version 4 is used. Senders that speak it add fields of their own."""

    alerts: list[Any]
    truncatedAlerts: int = Field(default=0, ge=0)


_WEBHOOK, _ALERT = TypeAdapter(_Webhook), TypeAdapter(_Alert)


def read_webhook(body: Any, now: int) -> Webhook:
    """One unreadable alert does not lose the others. Raises ValueError, naming what and where, when nothing of it can
    be read."""
    try:
        found = _WEBHOOK.validate_python(body)
    except ValidationError as error:
        raise ValueError(_faults(error, "")) from error
    alerts, own, problems = [], 0, []
    for number, item in enumerate(found.alerts):
        try:
            alert = _read(_ALERT.validate_python(item), now, found.truncatedAlerts)
        except ValidationError as error:
            problems.append(_faults(error, f"alerts.{number}"))
            continue
        own += is_ours(alert)
        alerts += [alert] if not is_ours(alert) else []
    if problems and len(problems) == len(found.alerts):
        raise ValueError("; ".join(problems[:5]))
    return Webhook(tuple(alerts), own, found.truncatedAlerts, tuple(problems))


def is_ours(alert: Alert) -> bool:
    """A page that we sent ourselves: taken for news it would feed on itself."""
    return alert.labels.get("source") == OURS


def _read(found: _Alert, now: int, cut: int) -> Alert:
    """A start that is Go's "no time" is none: it then began when it was told."""
    starts = found.startsAt if found.startsAt > ZERO else now
    ends = None
    if found.status == "resolved":
        ends = max(starts, found.endsAt) if found.endsAt > ZERO else now
    name = found.fingerprint or _fingerprint(found.labels)
    return Alert(name, starts, ends, found.labels, found.annotations, now, now, cut)


def _fingerprint(labels: Mapping[str, str]) -> str:
    """For senders that give none. Not Alertmanager's own hash: it only has to be the same each time."""
    return hashlib.sha256(json.dumps(labels, sort_keys=True).encode()).hexdigest()[:16]


def _faults(error: ValidationError, where: str) -> str:
    """`alerts.0.startsAt: 'x' is no time`."""
    told = []
    for item in error.errors()[:5]:
        place = ".".join(filter(None, (where, *map(str, item["loc"]))))
        told.append(f"{place or 'the body'}: {str(item['msg']).removeprefix('Value error, ')}")
    return "; ".join(told)
