"""Playbooks as YAML: which steps answer which incident, in which mode per session state."""

from __future__ import annotations

from collections.abc import Collection
from importlib.resources import files
from typing import Any

from bot import yamlfile
from bot.errors import ConfigError
from bot.policy import Playbook
from bot.yamlfile import Located


def load(site: Any = None, steps: Collection[str] = ()) -> tuple[Playbook, ...]:
    """The site's playbooks (a list of documents) before the shipped ones; the same id replaces.

    steps: names that exist; any other is refused. Raises ConfigError naming file and line.
    """
    own = [yamlfile.validate(Playbook, Located(f"playbooks[{i}]", data)) for i, data in enumerate(site or [])]
    names = {p.id for p in own}
    shipped = [p for p in _shipped() if p.id not in names]
    for playbook in (*own, *shipped):
        _refuse_unknown_steps(playbook, steps)
    return (*own, *shipped)


def _shipped() -> list[Playbook]:
    found = sorted((f for f in files("playbooks").iterdir() if f.name.endswith(".yaml")), key=lambda f: f.name)
    return [yamlfile.validate(Playbook, yamlfile.parse(f.read_text(encoding="utf-8"), f.name)) for f in found]


def _refuse_unknown_steps(playbook: Playbook, steps: Collection[str]) -> None:
    unknown = [s.step for s in playbook.steps if s.step not in steps]
    if steps and unknown:
        raise ConfigError(
            f"playbook {playbook.id}: no step {', '.join(unknown)}", f"steps that exist: {', '.join(sorted(steps))}"
        )
