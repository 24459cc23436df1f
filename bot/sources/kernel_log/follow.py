"""Log files by glob patterns, followed across rotation, truncation and restarts.

A file is known by device, inode and a hash of its first bytes, because an inode is given to the next file as soon as
the last one is gone. A read is bounded; what is left waits for the next one.
"""

from __future__ import annotations

import glob
import os
import stat
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from bot.sources.kernel_log.place import COMPRESSED, LONGEST, Id, Place, beside, opened
from bot.sources.kernel_log.seek import typical_time, window_start

AT_ONCE = 8 << 20  # bytes of one file in one read
IN_ALL = 32 << 20  # bytes of all files in one read: searched in a tenth of a second
PIECE = LONGEST  # bytes that are read and understood before we look at the time again
READ_FOR = 3.0  # s after which the rest waits: where every line is an Xid, 8 MiB take as long on a busy machine
FILES = 5000
SKEW = 1800  # s: the smallest difference between time zones
LOOKED = 300  # s: how exactly it is kept when we last looked, so that a quiet log costs no write in every tick
GONE_AFTER = 3600  # s that a renamed file, which no pattern matches, is still looked at

JOURNAL = b"LPKSHHRH"  # systemd's own files
PACKED = (b"\x1f\x8b", b"\xfd7zXZ", b"BZh", b"\x28\xb5\x2f\xfd", b"\x04\x22\x4d\x18")  # gz, xz, bz2, zst, lz4

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Part:
    """Complete lines of one file. live: they were written since the last look."""

    path: str
    data: bytes
    live: bool


@dataclass
class Files:
    """What files of the patterns have got since the last read. problems: path or pattern → what is wrong with it.

    time_of: when a line was written, given the line and now; None where it does not tell. One thread at a time.
    """

    patterns: Sequence[str]
    time_of: Callable[[bytes, int], int | None]
    problems: dict[str, str] = field(default_factory=dict)
    readable: bool = False
    _places: dict[Id, Place] = field(default_factory=dict)
    _looked: int | None = None  # when it was last read; None: never, not even before a restart

    def read(self, since: int, now: int) -> Iterator[Part]:
        """since: older lines need not come."""
        self.problems.clear()
        self.readable = False
        found = self._found(now)
        self._meet(found, since, now)
        ours = self._looked is not None and now - self._looked < GONE_AFTER
        left, until = IN_ALL, time.monotonic() + READ_FOR
        for key, path in sorted(found.items(), key=lambda item: self._places[item[0]].grown):
            most = min(AT_ONCE, left)
            while most > 0 and time.monotonic() < until:
                live = ours and self._places[key].live
                data = self._read(key, path, min(PIECE, most), since, now)
                if not data:
                    break
                if live and most == AT_ONCE and len(data) < PIECE // 2:
                    self._compare_clocks(path, data, now)
                left, most = left - len(data), most - len(data)
                yield Part(path, data, live)
        self._looked = now

    # -- kept over a restart -------------------------------------------------------------------------------------------

    def dump(self) -> Mapping[str, Any]:
        rows = [[*key, p.path, p.head, p.head_size, p.offset, p.skipping, p.grown] for key, p in self._places.items()]
        looked = None if self._looked is None else self._looked // LOOKED * LOOKED
        return {"looked": looked, "places": rows}

    def load(self, kept: Mapping[str, Any]) -> None:
        """Raises ValueError, KeyError or TypeError for what dump did not make."""
        places: dict[Id, Place] = {}
        for device, inode, path, head, head_size, offset, skipping, grown in kept["places"]:
            place = Place(str(path), str(head), int(head_size), int(offset), bool(skipping), int(grown))
            places[int(device), int(inode)] = place
        self._looked = None if kept["looked"] is None else int(kept["looked"])
        self._places = places

    # -- which files ---------------------------------------------------------------------------------------------------

    def _found(self, now: int) -> dict[Id, str]:
        """Files to read: those that match, and those that did until somebody renamed them."""
        found: dict[Id, str] = {}
        for pattern in self.patterns:
            paths = [path for path in sorted(glob.iglob(pattern, recursive=True)) if not path.endswith(COMPRESSED)]
            if not paths:
                self.problems[pattern] = "no such file, or its directory may not be listed; is the path right?"
            if len(paths) > FILES:
                self.problems[pattern] = f"{len(paths)} files match and {FILES} are read; name fewer in the site file"
            for path in paths[:FILES]:
                if (key := self._id(path)) is not None:
                    found.setdefault(key, path)
        for key, place in list(self._places.items()):
            if key not in found and (renamed := self._renamed(key, place)):
                found[key] = renamed
            elif key not in found and now - place.grown > GONE_AFTER:
                del self._places[key]
        return found

    def _id(self, path: str) -> Id | None:
        try:
            known = os.stat(path)
        except FileNotFoundError:
            return None
        except OSError as error:
            self._refused(path, error)
            return None
        if stat.S_ISREG(known.st_mode):
            return known.st_dev, known.st_ino
        if not stat.S_ISDIR(known.st_mode):
            self.problems[path] = "is no regular file and is not read"
        return None

    def _renamed(self, key: Id, place: Place) -> str | None:
        """Its path today. Another file may have got its inode, so it must begin as it did."""
        path = beside(place.path).get(key)
        return path if path and self._look(path, lambda fd, _: place.fits(fd), key) else None

    # -- new and cut files ---------------------------------------------------------------------------------------------

    def _meet(self, found: dict[Id, str], since: int, now: int) -> None:
        """A place for each file. The copy of a file that was then cut (logrotate's copytruncate) or replaced (rsync) is
        read on from where that one was left, whether a pattern matches it or not; the cut one begins anew."""
        before = {place.path: place for place in self._places.values()}
        cut = {key: self._places.pop(key) for key, path in found.items() if self._is_cut(key, path)}
        for place in cut.values():
            for key, path in beside(place.path).items():
                if key not in found and self._copy_of([place], path, now):
                    found[key] = path
                    self._places.pop(key, None)  # of a file that is gone, whose inode this one got
        for key, path in [item for item in found.items() if item[0] not in self._places]:
            originals = [*cut.values(), *([before[path]] if path in before else [])]
            met = self._copy_of(originals, path, now) or self._begun(path, cut.get(key), path in before, since, now)
            if met:
                self._places[key] = met
            else:
                del found[key]

    def _is_cut(self, key: Id, path: str) -> bool:
        place = self._places.get(key)
        return place is not None and bool(self._look(path, place.is_cut, key))

    def _copy_of(self, originals: Sequence[Place], path: str, now: int) -> Place | None:
        for place in originals:
            if self._look(path, place.is_copied_to):
                return Place(path, place.head, place.head_size, place.offset, place.skipping, now)
        return None

    def _begun(self, path: str, cut: Place | None, replaces: bool, since: int, now: int) -> Place | None:
        """A file that was cut begins anew; one that only got the inode of another is new."""
        return Place(path, grown=now) if cut and cut.path == path else self._new(path, replaces, since, now)

    def _new(self, path: str, replaces: bool, since: int, now: int) -> Place | None:
        """From where the window begins. Where the lines tell no times, all is new in a file that has taken the place of
        another one, and nobody knows how old it is in any other. None for what is no text."""

        def begin(fd: int, known: os.stat_result) -> Place | None:
            magic = os.pread(fd, 8, 0)
            if magic == JOURNAL:
                self.problems[path] = "is a binary journal; let logs.kernel_log.command read it (journalctl --file)"
            if magic == JOURNAL or magic.startswith(PACKED):
                return None
            start = self._start(fd, known.st_size, since, now)
            offset = start if start is not None else 0 if replaces else known.st_size
            return Place(path, offset=offset, grown=now, live=replaces)

        return self._look(path, begin)

    def _start(self, fd: int, size: int, since: int, now: int) -> int | None:
        return window_start(lambda at, most: os.pread(fd, most, at), size, since, lambda line: self.time_of(line, now))

    # -- reading -------------------------------------------------------------------------------------------------------

    def _read(self, key: Id, path: str, most: int, since: int, now: int) -> bytes:
        """Complete lines from where it was left."""
        place = self._places[key]
        place.path = path

        def read(fd: int, known: os.stat_result) -> bytes:
            self.readable = True
            stamp = known.st_size, known.st_mtime_ns
            if stamp == place.stamp and place.offset >= known.st_size:
                return b""
            far = known.st_size - place.offset > AT_ONCE
            if far and (start := self._start(fd, known.st_size, since, now)) and start > place.offset:
                place.offset, place.skipping = start, False  # what is older than the window is not read any more
            before, data = place.offset, place.take(fd, most)
            place.grown = now if place.offset > before else place.grown
            place.live = place.live or len(data) < most
            place.stamp = stamp
            return data

        return self._look(path, read, key) or b""

    def _compare_clocks(self, path: str, data: bytes, now: int) -> None:
        """Most lines that were just written (a large piece is a backlog) cannot be half an hour old, or not yet
        written: the time zone is wrong, and what they tell would be taken for old without a word."""
        at = typical_time(data, lambda line: self.time_of(line, now))
        gap = max(0, now - (self._looked or now))  # our own clock may have been set back
        if at is not None and not now - gap - SKEW < at < now + SKEW:
            off = f"{abs(now - at) / 3600:.1f} h {'old' if at < now else 'ahead'}"
            self.problems[path] = f"lines just written are {off}; correct the clocks, or logs.kernel_log.timezone"

    def _look(self, path: str, use: Callable[[int, os.stat_result], T], key: Id | None = None) -> T | None:
        """What cannot be read becomes a problem, and hides no other file."""
        try:
            return opened(path, use, key)
        except OSError as error:
            self._refused(path, error)
            return None

    def _refused(self, path: str, error: OSError) -> None:
        remedy = "; give xidbot's account the group that may read it" if isinstance(error, PermissionError) else ""
        self.problems[path] = f"{error.strerror or error}{remedy}"
