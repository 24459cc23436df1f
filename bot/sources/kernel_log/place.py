"""How far one log file was read, and what tells it from another one."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeVar

HEAD = 1024  # bytes that tell a file from another one
TELLING = 16  # bytes without which a head is no proof: a time stamp
LONGEST = 1 << 20  # bytes without a line break that are still waited for; more is no log
COMPRESSED = (".gz", ".xz", ".bz2", ".zst", ".lz4", ".zip", ".Z", ".lzma")

Id = tuple[int, int]  # device, inode
T = TypeVar("T")


@dataclass
class Place:
    """offset: behind the last complete line. head: hash of the first head_size bytes. skipping: within a line that is
    too long. grown: when it last gave something.

    Not kept over a restart: stamp, size and mtime of the last look; live, what was there when we first saw the file is
    read, so that whatever comes is new.
    """

    path: str
    head: str = ""
    head_size: int = 0
    offset: int = 0
    skipping: bool = False
    grown: int = 0
    stamp: tuple[int, int] = (-1, -1)
    live: bool = True

    def fits(self, fd: int) -> bool:
        """The file begins as the one that was read; one of which nothing was read yet fits every file."""
        return head(fd, self.head_size) == self.head

    def is_cut(self, fd: int, known: os.stat_result) -> bool:
        """Truncated, or another file under the same inode."""
        return known.st_size < self.offset or not self.fits(fd)

    def is_copied_to(self, fd: int, known: os.stat_result) -> bool:
        """The other file begins like this one and is not shorter than what was read of it."""
        return self.head_size >= TELLING and self.offset <= known.st_size and self.fits(fd)

    def take(self, fd: int, most: int) -> bytes:
        """The next complete lines; the place moves behind them. A line that never ends is given up."""
        data = os.pread(fd, most, self.offset)
        end = data.rfind(b"\n") + 1
        if not end and (self.skipping or len(data) >= LONGEST):
            self.offset, self.skipping = self.offset + len(data), True
            return b""
        start = data.find(b"\n") + 1 if self.skipping else 0
        self.offset, self.skipping = self.offset + end, self.skipping and not end
        if self.head_size < min(HEAD, self.offset):
            self.head_size = min(HEAD, self.offset)
            self.head = head(fd, self.head_size)
        return data[start:end]


def head(fd: int, size: int) -> str:
    return hashlib.sha256(os.pread(fd, size, 0)).hexdigest()[:16] if size else ""


def opened(path: str, use: Callable[[int, os.stat_result], T], key: Id | None = None) -> T | None:
    """use(descriptor, facts) of a regular file; None where there is none, or not the one with this id. Never waits for
    a FIFO's writer. Raises OSError for what may not be read."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    except FileNotFoundError:  # rotated away between two looks; found again by its inode
        return None
    try:
        known = os.fstat(fd)
        ours = stat.S_ISREG(known.st_mode) and key in (None, (known.st_dev, known.st_ino))
        return use(fd, known) if ours else None
    finally:
        os.close(fd)


def beside(path: str) -> dict[Id, str]:
    """Regular, uncompressed files of the same directory."""
    found: dict[Id, str] = {}
    with suppress(OSError), os.scandir(os.path.dirname(path) or ".") as listing:
        for entry in listing:
            with suppress(OSError):
                if entry.is_file(follow_symlinks=False) and not entry.name.endswith(COMPRESSED):
                    known = entry.stat(follow_symlinks=False)
                    found[known.st_dev, known.st_ino] = entry.path
    return found
