"""The marker that a trainer pushes when it saves, as data. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Self

from pydantic import BeforeValidator, Field, TypeAdapter, ValidationError, model_validator

from bot.moments import rfc3339
from bot.yamlfile import Strict

# Unix milliseconds of any time since 1973 are above, Unix seconds until the year 5138 below.
TOO_LARGE = 1e11
AHEAD = 300  # s that a trainer's clock may be ahead of ours; beyond that the newest save would never be the newest


@dataclass(frozen=True, slots=True)
class Marker:
    """A save, begun and perhaps complete. job: the scheduler's job id; session: the run's name; one may be empty.

    step None: not told. Times are Unix seconds by the trainer's clock, at least one is there. at: when it came.
    """

    job: str
    session: str
    step: int | None
    started: int | None
    completed: int | None
    bytes: int | None = None
    path: str = ""
    at: int = 0


def _name(value: object) -> object:
    """Job ids are often sent as numbers."""
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


def _seconds(value: object) -> object:
    """Unix seconds, or RFC 3339 with a time zone."""
    if value is None:
        return None
    if isinstance(value, str):
        value = rfc3339(value, " or Unix seconds")
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError("is no time; Unix seconds or RFC 3339 are expected")
    if not 0 < value < TOO_LARGE:
        raise ValueError(f"{value:g} are no Unix seconds{'; milliseconds?' if value >= TOO_LARGE else ''}")
    return int(value)


Name = Annotated[str, BeforeValidator(_name), Field(max_length=200)]
Seconds = Annotated[int | None, BeforeValidator(_seconds)]
Count = Annotated[int | None, Field(ge=0, lt=2**63)]  # what SQLite can hold


class _Marker(Strict):
    job: Name = ""
    session: Name = ""
    step: Count = None
    started: Seconds = None
    completed: Seconds = None
    bytes: Count = None
    path: Annotated[str, Field(max_length=4096)] = ""

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if not self.job and not self.session:
            raise ValueError("neither job nor session is named")
        if self.started is None and self.completed is None:
            raise ValueError("neither started nor completed is told")
        if self.started is not None and self.completed is not None and self.completed < self.started:
            raise ValueError("completed lies before started")
        return self


_MARKER = TypeAdapter(_Marker)


def read_marker(body: Any, now: int) -> Marker:
    """Raises ValueError, naming every fault and where it stands."""
    try:
        found = _MARKER.validate_python(body)
    except ValidationError as error:
        raise ValueError("; ".join(_fault(dict(item)) for item in error.errors()[:5])) from error
    for name in ("started", "completed"):
        ahead = (getattr(found, name) or 0) - now
        if ahead > AHEAD:
            raise ValueError(f"{name}: lies {ahead} s in the future; is the clock of that machine set?")
    return Marker(**found.model_dump(), at=now)


def _fault(item: dict[str, Any]) -> str:
    place = ".".join(map(str, item["loc"])) or "the marker"
    if item["type"] == "extra_forbidden":
        return f"{place}: unknown key; there is {', '.join(_Marker.model_fields)}"
    return f"{place}: {str(item['msg']).removeprefix('Value error, ')}"
