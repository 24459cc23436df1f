"""A playbook: for which incidents, and which steps in which mode."""

from __future__ import annotations

from bot.model import Kind, Mode
from bot.yamlfile import Strict


class When(Strict):
    kind: Kind
    hard: bool | None = None


class Step(Strict):
    """One step with its mode per session state."""

    step: str
    dead: Mode
    degraded: Mode
    running: Mode


class Playbook(Strict):
    id: str
    title: str
    when: When
    steps: tuple[Step, ...]
    why: str
