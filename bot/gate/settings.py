"""What the gate may touch and how often: one file that is root's alone."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from pathlib import Path

import yaml

from bot.errors import ConfigError, SourceError
from bot.slurm_records import parse_hostlist

CONFIG = Path("/etc/xidbot/gate.yaml")
OWNER = 0  # who must own it: root


@dataclass(frozen=True, slots=True)
class Caps:
    """held_nodes and held_share (of the nodes allowed): the smaller counts. writes per window seconds."""

    held_nodes: int = 3
    held_share: Decimal = Decimal("0.05")
    writes: int = 4
    window: int = 600


@dataclass(frozen=True, slots=True)
class Settings:
    """What may be touched: an empty list allows nothing, '*' everything."""

    pause_file: Path
    log: Path
    nodes: frozenset[str] = frozenset()
    partitions: frozenset[str] = frozenset()
    accounts: frozenset[str] = frozenset()
    caps: Caps = field(default_factory=Caps)
    slurm_conf: str = ""
    scontrol: str = "scontrol"
    squeue: str = "squeue"
    deadline: float = 8.0  # seconds for one Slurm command


def load_settings(path: Path) -> Settings:
    """Raises ConfigError when the file is not root's alone, or says something that is not understood."""
    try:
        raw = yaml.load(_root_text(path), Loader=yaml.BaseLoader)  # strings only: 22:00 is no number
    except yaml.YAMLError as error:
        raise ConfigError(f"{path} is no YAML: {' '.join(str(error).split())[:200]}") from error
    if not isinstance(raw, dict):
        raise ConfigError(f"{path} holds no settings")
    return _settings(raw)


def _root_text(path: Path) -> str:
    """Nobody but root may have been able to write what decides over writes."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from error
    with open(fd, encoding="utf-8", errors="replace") as file:
        for facts, what in ((os.fstat(fd), path), (os.stat(path.parent), path.parent)):
            if facts.st_uid != OWNER or facts.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
                raise ConfigError(f"{what} must belong to root and be writable by root alone")
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise ConfigError(f"{path} is no plain file")
        return file.read()


def _settings(raw: dict[str, object]) -> Settings:
    known = {
        "nodes": lambda v: frozenset(name for item in _strings(v, "nodes") for name in _hosts(item)),
        "partitions": lambda v: frozenset(_strings(v, "partitions")),
        "accounts": lambda v: frozenset(_strings(v, "accounts")),
        "caps": _caps,
        "pause_file": lambda v: _path(v, "pause_file"),
        "log": lambda v: _path(v, "log"),
        "slurm_conf": lambda v: str(_path(v, "slurm_conf")),
        "scontrol": lambda v: str(_path(v, "scontrol")),
        "squeue": lambda v: str(_path(v, "squeue")),
        "deadline": lambda v: float(_seconds(v, "deadline")),
    }
    values = _picked(raw, known)
    missing = [name for name in ("pause_file", "log") if name not in values]
    if missing:
        raise ConfigError(f"{missing[0]} is missing")
    return Settings(**values)  # type: ignore[arg-type]


def _caps(value: object) -> Caps:
    if not isinstance(value, dict):
        raise ConfigError("caps must hold held_nodes, held_share, writes, window")
    known = {
        "held_nodes": lambda v: _whole(v, "caps.held_nodes"),
        "held_share": lambda v: _share(v, "caps.held_share"),
        "writes": lambda v: _whole(v, "caps.writes"),
        "window": lambda v: _seconds(v, "caps.window"),
    }
    return Caps(**_picked(value, known))  # type: ignore[arg-type]


def _picked(raw: Mapping[str, object], known: Mapping[str, Callable[[object], object]]) -> dict[str, object]:
    for name in raw:
        if name not in known:
            raise ConfigError(f"{name}: no such setting; there are {', '.join(known)}")
    return {name: known[name](value) for name, value in raw.items()}


def _strings(value: object, name: str) -> list[str]:
    items = [value] if isinstance(value, str) else value
    if not isinstance(items, list) or not all(isinstance(item, str) for item in items):
        raise ConfigError(f"{name} must be a list of names")
    return [item for item in items if item]


def _hosts(item: str) -> tuple[str, ...]:
    try:
        return ("*",) if item == "*" else parse_hostlist(item)
    except SourceError as error:
        raise ConfigError(f"nodes: {error.message}") from error


def _path(value: object, name: str) -> Path:
    if not isinstance(value, str) or not value.startswith("/"):
        raise ConfigError(f"{name} must be an absolute path")
    return Path(value)


def _whole(value: object, name: str) -> int:
    if not isinstance(value, str) or not re.fullmatch(r"[0-9]{1,6}", value):
        raise ConfigError(f"{name} must be a whole number")
    return int(value)


def _share(value: object, name: str) -> Decimal:
    try:
        share = Decimal(str(value))
    except InvalidOperation as error:
        raise ConfigError(f"{name} must be a number between 0 and 1") from error
    if not share.is_finite() or not 0 <= share <= 1:
        raise ConfigError(f"{name} must be between 0 and 1")
    return share


def _seconds(value: object, name: str) -> int:
    found = re.fullmatch(r"([0-9]{1,6})([smhd])", value) if isinstance(value, str) else None
    if not found or not int(found[1]):
        raise ConfigError(f"{name} must be a duration like 90s, 10m or 2h")
    return int(found[1]) * {"s": 1, "m": 60, "h": 3600, "d": 86400}[found[2]]
