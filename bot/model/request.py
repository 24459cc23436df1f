"""What people ask, and who may."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Role = Literal["viewer", "operator", "admin"]
ROLES: tuple[Role, ...] = ("viewer", "operator", "admin")


@dataclass(frozen=True, slots=True)
class Request:
    """What a person asked: a typed command or a click. dedupe: the same words delivered twice are one request."""

    text: str
    user: str  # Slack user id, or os:<name>
    at: int
    source: Literal["slack", "cli"] = "cli"
    dedupe: str = ""
    channel: str = ""
    thread: str = ""
    response_url: str = ""
    id: int = 0
    facts: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Answer:
    """What a person was told, and when."""

    request: int
    user: str
    text: str
    reply: str
    ok: bool
    at: int
    source: str = "cli"
