"""The shipped files with one site file laid over them."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import Any

from pydantic import RootModel

from bot import yamlfile
from bot.errors import ConfigError
from bot.model import Mode
from bot.policy.figures import Numbers
from bot.policy.playbook import Playbook
from bot.policy.policy import Policy
from bot.policy.session_rule import SessionRule
from bot.policy.signal import Signal
from bot.storage.numbers import numbers as storage_numbers
from bot.yamlfile import Located


def shipped(package: str, name: str) -> Located:
    return yamlfile.parse(files(package).joinpath(name).read_text(encoding="utf-8"), f"{package}/{name}")


def _laid_over(base: Located, over: Any, site: Located | None, key: str) -> Located:
    """The shipped document with the site's laid over it; a fault in what the site gave is told with the site's line."""
    return Located(base.name, yamlfile.merged(base.data, over or {}), base.lines, site, key)


def numbers(over: Any, site: Located | None = None) -> Numbers:
    return yamlfile.validate(Numbers, _laid_over(shipped("bot", "policy.yaml"), over, site, "policy"))


class _Catalogue(RootModel[dict[str, Signal]]):
    pass


def signals(over: Any, site: Located | None = None) -> dict[str, Signal]:
    """Shipped catalogue with the site's laid over it by id. Another id is a signal of the site's own."""
    base = shipped("bot.signals", "catalogue.yaml")
    own = {name: _own(name, entry, base, site) for name, entry in (over or {}).items() if name not in base.data}
    table = yamlfile.validate(_Catalogue, _laid_over(base, {**(over or {}), **own}, site, "signals")).root
    return {name: signal.model_copy(update={"id": name}) for name, signal in table.items()}


def _own(name: str, entry: Any, base: Located, site: Located | None) -> Any:
    """What a site says of a signal that is not shipped, and for the rest: soft, and a claim. Raises ConfigError for
    what may be a shipped one misspelt."""
    if not isinstance(entry, Mapping) or not {"query", "evidence"} <= set(entry):
        near = difflib.get_close_matches(name, base.data, n=1, cutoff=0.5)
        meant = f"; did you mean {near[0]!r}?" if near else ""
        where = f"{site.name}:{site.line(('signals', name))}: " if site else ""
        raise ConfigError(
            f"{where}signals.{name}: not in the catalogue{meant}", "a signal of your own needs a query and evidence"
        )
    told = {"title": name, "category": "host", "provenance": "claimed", "text": f"{name}: {{value:.4g}}"}
    return {**told, "why": "the site's own", "source": "the site file", **entry}


def build(
    *,
    policy: Any = None,
    signal_overrides: Any = None,
    playbooks: Sequence[Playbook] = (),
    sessions: Sequence[SessionRule] = (),
    write_mode: Mode = "observe",
    gpus: Mapping[str, int] | None = None,
    located: Located | None = None,
) -> Policy:
    over = dict(policy or {})
    storage = storage_numbers(over.pop("storage", None), located)
    return Policy(
        numbers=numbers(over, located),
        storage=storage,
        signals=signals(signal_overrides, located),
        playbooks=tuple(playbooks),
        sessions=tuple(sessions),
        write_mode=write_mode,
        gpus=gpus or {},
    )
