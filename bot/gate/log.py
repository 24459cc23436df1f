"""The gate's log, and the lock that lets one call happen at a time."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from bot.gate.answer import FAILED, End

WRITES = ("hold", "requeue")  # log stages that use up a slot of the window
LOCK_WAIT = 5.0  # seconds to wait for another call of the gate


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
