"""What the gate works with: its settings, its log, its lock and Slurm's commands.

As the gate itself it needs the standard library, yaml and the words of Slurm, nothing else of xidbot.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import signal
import stat
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from pathlib import Path

import yaml

from bot.errors import ConfigError, SourceError
from bot.model import Job, Node
from bot.slurm_records import node_fields, parse_hostlist, parse_jobs, parse_nodes

CONFIG = Path("/etc/xidbot/gate.yaml")
OWNER = 0  # who must own it: root
DONE, ALREADY, REFUSED, FAILED, UNCLEAR = 0, 3, 4, 5, 6
WRITES = ("hold", "requeue")  # log stages that use up a slot of the window
LOCK_WAIT = 5.0  # seconds to wait for another call of the gate


class End(Exception):
    """The answer, from wherever it became clear. `facts` go into the printed object."""

    def __init__(self, exit: int, reason: str, **facts: object) -> None:
        super().__init__(reason)
        self.exit, self.reason, self.facts = exit, reason, facts


# -- settings -------------------------------------------------------------------------------------


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


# -- the log --------------------------------------------------------------------------------------


class Log:
    """One JSON object per line and stage, on disk before anything happens. `key` is what the caller's action is."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def entries(self) -> list[dict[str, object]]:
        """A line that was cut off when the machine died is skipped."""
        try:
            lines = self._path.read_text(encoding="utf-8", errors="replace").splitlines()
        except FileNotFoundError:
            return []
        return [entry for entry in map(_object, lines) if "key" in entry]

    def of(self, key: str) -> list[dict[str, object]]:
        return [entry for entry in self.entries() if entry["key"] == key]

    def writes(self, since: float) -> dict[str, float]:
        """Key → when it first wrote, for the keys that did after `since`."""
        first: dict[str, float] = {}
        for entry in self.entries():
            at = entry.get("at")
            if entry.get("stage") in WRITES and isinstance(at, (int, float)):
                first.setdefault(str(entry["key"]), at)
        return {key: at for key, at in first.items() if at > since}

    def append(self, entry: Mapping[str, object]) -> None:
        fd = os.open(self._path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o640)
        try:
            size = os.fstat(fd).st_size
            torn = size > 0 and os.pread(fd, 1, size - 1) != b"\n"
            os.write(fd, (b"\n" if torn else b"") + json.dumps(entry).encode() + b"\n")
            os.fsync(fd)
        finally:
            os.close(fd)


def _object(line: str) -> dict[str, object]:
    try:
        entry = json.loads(line)
    except ValueError:
        return {}
    return entry if isinstance(entry, dict) else {}


@contextlib.contextmanager
def locked(path: Path) -> Iterator[int]:
    """One call of the gate at a time: keys run once and two callers cannot both take the last slot. Slurm's commands
    inherit the descriptor, so the lock outlives a killed gate until its last command has ended."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        until = time.monotonic() + LOCK_WAIT
        while not _take(fd):
            if time.monotonic() > until:
                raise End(FAILED, "another call of the gate is still running; ask again")
            time.sleep(0.05)
        yield fd
    finally:
        os.close(fd)


def _take(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


# -- Slurm ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Ran:
    """code None: killed at the deadline; it may have acted all the same."""

    code: int | None
    out: str
    err: str

    @property
    def said(self) -> str:
        text = "; ".join(line.strip() for line in self.err.splitlines() if line.strip())[:300]
        return text or ("no answer in time" if self.code is None else f"exit {self.code}")


@dataclass(frozen=True, slots=True)
class Slurm:
    """Slurm's own commands. lock: the descriptor that each of them inherits."""

    settings: Settings
    lock: int | None = None

    def nodes(self) -> tuple[dict[str, Node], dict[str, str]]:
        """Nodes, and the raw reasons, which may also stand on a node that nobody holds."""
        text = self._read(self.settings.scontrol, "-d", "show", "node")
        reasons = {fields["NodeName"]: fields.get("Reason", "") for fields in node_fields(text)}
        return parse_nodes(text)[0], reasons

    def jobs(self) -> dict[str, Job]:
        return parse_jobs(self._read(self.settings.squeue, "--json", "--all", "--states=all"))[0]

    def change(self, *words: str) -> Ran:
        return self._run(self.settings.scontrol, *words)

    def _read(self, *words: str) -> str:
        ran = self._run(*words)
        if ran.code != 0:
            raise End(FAILED, f"Slurm cannot be read: {ran.said}")
        return ran.out

    def _run(self, *words: str) -> Ran:
        with subprocess.Popen(
            words,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=self._env(),
            text=True,
            encoding="utf-8",
            errors="replace",
            start_new_session=True,
            pass_fds=() if self.lock is None else (self.lock,),
        ) as process:
            try:
                out, err = process.communicate(timeout=self.settings.deadline)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                return Ran(None, "", "no answer in time")
        return Ran(process.returncode, out, err)

    def _env(self) -> dict[str, str]:
        path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
        env = {"PATH": path, "LC_ALL": "C", "TZ": "UTC", "SLURM_TIME_FORMAT": "%s"}
        return {**env, "SLURM_CONF": self.settings.slurm_conf} if self.settings.slurm_conf else env
