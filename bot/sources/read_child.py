"""The reading child: a program of its own, run by its path with the standard library alone.

In: one line of JSON per question on standard input. Out: one line of JSON per answer, in order, as soon as it is known.
It may hang with the storage that it reads, so it holds nothing of its parent's, and it ends with its parent: its
standard input is then at its end. It opens regular files only: a FIFO or a device in a log's place must not hold it.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import fnmatch
import glob
import itertools
import json
import os
import re
import stat
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

FLAGS = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY
SEAM = 4096  # bytes: some dozens of lines, with their times or steps
SMALL = 256  # bytes of a marker that names a checkpoint: longer ones do not
ZIP_END = b"PK\x05\x06"  # torch.save writes this record last, within the file's last 64 KiB + 22 bytes
ZIP_TAIL = 65_557

Answer = dict[str, Any]


def tail(path: str, known: dict[str, list[int]], limit: int, newest: int) -> Answer:
    """What the files of a glob pattern have got since last time, at most the last `limit` bytes of each.

    known: path -> [inode, offset, seam] of last time; another inode, a shorter file, and one that has something else
    before the offset (Slurm cuts a requeued job's log, which may have grown past it by now) is read anew. newest: so
    many files, the most recently changed first.
    """
    files = [file for found in glob.iglob(path) if (file := _regular(found))]
    if not files:
        raise _nothing(path, "no such file")
    files.sort(key=lambda file: (-file[1].st_mtime_ns, file[0]))
    return {"files": [_tail(name, known.get(name, [0, 0, 0]), limit) for name, _ in files[:newest]]}


def _nothing(path: str, words: str) -> FileNotFoundError:
    """What to raise when nothing matched. Raises another OSError where that is why: glob passes over what it may not
    read."""
    magic = re.search(r"[*?[]", path)
    fixed = os.path.dirname(path[: magic.start()]) if magic else path
    os.stat(fixed)
    if magic:
        os.scandir(fixed).close()
    return FileNotFoundError(2, words, path)


def _regular(path: str) -> tuple[str, os.stat_result] | None:
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return None
    return (path, found) if stat.S_ISREG(found.st_mode) else None


def _tail(path: str, known: list[int], limit: int) -> Answer:
    inode, offset, seam = known
    fd = os.open(path, FLAGS)
    try:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode):
            raise OSError(22, "not a regular file", path)
        same = found.st_ino == inode and offset <= found.st_size and seam == _seam(fd, offset)
        begin = max(offset if same else 0, found.st_size - limit)
        data = _bytes(fd, begin, found.st_size - begin)
        return {
            "path": path,
            "inode": found.st_ino,
            "size": found.st_size,
            "mtime": found.st_mtime,
            "begin": begin,
            "fresh": not same,
            "seam": _seam(fd, begin + len(data)),
            "data": base64.b64encode(data).decode("ascii"),
        }
    finally:
        os.close(fd)


def _seam(fd: int, end: int) -> int:
    """A checksum of what lies before the end: two attempts' logs may begin alike, and hardly have the same there."""
    begin = max(0, end - SEAM)
    return binascii.crc32(_bytes(fd, begin, end - begin))


def _bytes(fd: int, begin: int, count: int) -> bytes:
    parts = []
    while count > 0 and (part := os.pread(fd, count, begin)):
        parts.append(part)
        begin, count = begin + len(part), count - len(part)
    return b"".join(parts)


def saves(path: str, steps: str, trackers: list[str], marks: list[str], entries: int, newest: int) -> Answer:
    """What lies in the directories of checkpoints that a glob pattern matches, as facts: which checkpoint is complete
    is for the parent to judge.

    steps: a regular expression that a checkpoint's name matches. trackers, marks: globs of files beside and within a
    checkpoint. entries: at most so many names of one directory, and files of one checkpoint, are looked at. newest: so
    many directories, and checkpoints in each, the most recently changed first.
    """
    found = [(name, os.stat(name).st_mtime_ns) for name in glob.iglob(path) if os.path.isdir(name)]
    if not found:
        raise _nothing(path, "no such directory")
    found.sort(key=lambda pair: (-pair[1], pair[0]))
    return {"directories": [_directory(name, steps, trackers, marks, entries, newest) for name, _ in found[:newest]]}


def _directory(path: str, steps: str, trackers: list[str], marks: list[str], entries: int, newest: int) -> Answer:
    names = list(_scan(path, entries))
    files = [entry for entry in names if _any(entry.name, trackers) and not entry.is_dir(follow_symlinks=False)]
    told = [tracker for entry in files if (tracker := _tracker(entry))]
    mine = [entry for entry in names if re.search(steps, entry.name) and not _any(entry.name, trackers)]
    seen = [(entry, known) for entry in mine if not entry.is_symlink() and (known := _stat(entry))]
    seen.sort(key=lambda pair: (-pair[1].st_mtime_ns, pair[0].name))
    found = [_save(entry, known, marks, entries) for entry, known in seen[:newest]]
    return {"path": path, "trackers": told, "saves": found}


def _stat(entry: os.DirEntry[str]) -> os.stat_result | None:
    """Of the name itself. None: removed since it was listed."""
    try:
        return entry.stat(follow_symlinks=False)
    except FileNotFoundError:
        return None


def _any(name: str, globs: list[str]) -> bool:
    return any(fnmatch.fnmatchcase(name, wanted) for wanted in globs)


def _scan(path: str, entries: int) -> Iterator[os.DirEntry[str]]:
    with os.scandir(path) as listing:
        yield from itertools.islice(listing, entries)


def _tracker(entry: os.DirEntry[str]) -> Answer | None:
    """Its text, or what it points to."""
    if not (found := _stat(entry)):
        return None
    text = ""
    with contextlib.suppress(FileNotFoundError):
        if entry.is_symlink():
            text = os.path.basename(os.readlink(entry.path))
        elif stat.S_ISREG(found.st_mode) and found.st_size <= SMALL:
            text = _head(entry.path).decode("utf-8", "replace").strip()
    return {"name": entry.name, "mtime": found.st_mtime, "text": text}


def _head(path: str) -> bytes:
    fd = os.open(path, FLAGS)
    try:
        return _bytes(fd, 0, SMALL)
    finally:
        os.close(fd)


def _save(entry: os.DirEntry[str], known: os.stat_result, marks: list[str], entries: int) -> Answer:
    """One checkpoint: a file, or a directory with all that is in it. renamed: it got its name after all was written."""
    if not stat.S_ISDIR(known.st_mode):
        whole = stat.S_ISREG(known.st_mode) and _whole_zip(entry.path, known.st_size)
        return {"name": entry.name, "dir": False, "whole": whole, "marks": [], **_sums([known])}
    files = list(itertools.islice(_files(entry.path, entries), entries))
    told = [{"name": name, "mtime": s.st_mtime} for name, top, s in files if top and _any(name, marks)]
    stats = [s for _, _, s in files]
    renamed = known.st_ctime_ns > max([known.st_mtime_ns, *(s.st_mtime_ns for s in stats)])
    return {"name": entry.name, "dir": True, "renamed": renamed, "marks": told, **_sums(stats)}


def _files(path: str, entries: int) -> Iterator[tuple[str, bool, os.stat_result]]:
    """(name, it lies at the top, facts). What is removed meanwhile is left out."""
    dirs = [path]
    while dirs:
        here = dirs.pop()
        with contextlib.suppress(FileNotFoundError):
            for inner in _scan(here, entries):
                if inner.is_dir(follow_symlinks=False):
                    dirs.append(inner.path)
                elif known := _stat(inner):
                    yield inner.name, here == path, known


def _sums(stats: list[os.stat_result]) -> Answer:
    """first: when its first file was there. The change time tells it, because a copied file keeps an old modification
    time; where somebody changed modes later, the modification time does."""
    if not stats:
        return {"files": 0, "bytes": 0, "first": None, "last": None}
    last = max(s.st_mtime for s in stats)
    changed = min(s.st_ctime for s in stats)
    first = changed if changed <= last else min(s.st_mtime for s in stats)
    return {"files": len(stats), "bytes": sum(s.st_size for s in stats), "first": first, "last": last}


def _whole_zip(path: str, size: int) -> bool:
    """The end record of a zip archive, which is what torch.save makes, is there."""
    begin = max(0, size - ZIP_TAIL)
    try:
        fd = os.open(path, FLAGS)
    except FileNotFoundError:
        return False
    try:
        return ZIP_END in _bytes(fd, begin, size - begin)
    finally:
        os.close(fd)


VERBS: dict[str, Callable[..., Answer]] = {"tail": tail, "saves": saves}


def answer(line: str) -> Answer:
    """The answer, or {"error": why, "missing": whether nothing is there}."""
    question = json.loads(line)
    try:
        return VERBS[question.pop("verb")](**question)
    except FileNotFoundError as error:
        return {"error": f"{error.strerror}: {error.filename}", "missing": True}
    except OSError as error:
        return {"error": f"{error.strerror or error}: {error.filename or question.get('path')}", "missing": False}


def main() -> None:
    asked = []
    while (line := sys.stdin.readline()) and line != "\n":  # an empty line ends the questions
        asked.append(line)
    threading.Thread(target=_end_with_the_parent, daemon=True).start()
    for line in asked:
        sys.stdout.write(json.dumps(answer(line)) + "\n")
        sys.stdout.flush()


def _end_with_the_parent() -> None:
    sys.stdin.read()
    os._exit(1)


if __name__ == "__main__":
    main()
