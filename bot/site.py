"""A site file, read and merged with what is shipped."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import playbooks
from bot import policy
from bot.config import Config, load
from bot.plans import STEPS
from bot.policy import Policy
from bot.schedulers.hostlist import parse_hostlist


@dataclass(frozen=True, slots=True)
class Site:
    path: Path
    config: Config
    policy: Policy


def read_site(path: Path) -> Site:
    """Raises ConfigError naming every fault with its line."""
    config, located = load(path)
    gpus = {node: row.gpus for row in config.expected for node in parse_hostlist(row.nodes)}
    merged = policy.build(
        policy=config.policy,
        signal_overrides=config.signals,
        playbooks=playbooks.load(config.playbooks, STEPS),
        sessions=config.sessions,
        write_mode=config.site.write_mode,
        gpus=gpus,
        located=located,
    )
    return Site(path, config, merged)
