"""Reading from a storage that may hang: by a child process with a deadline, left to itself when it does not answer.

A process that waits for a dead file server may not even be killable, so a late child is neither waited for nor killed:
as long as it lives, its storage hangs, and nobody else is sent there. When the storage answers again, it ends.
"""

from __future__ import annotations

import base64
import json
import os
import selectors
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from threading import Lock
from typing import Any

from bot.errors import BadReply, Unreachable

SOURCE = "files"
DEADLINE = 5.0  # s: a healthy file system lists a checkpoint directory in milliseconds; a tick is 15 s
MOST = 32 * 1024 * 1024  # bytes of all answers of one child: 16 jobs' logs, 4 files each, 256 KiB of each in base64
# -I -S: nothing of the user's, no site-packages: it starts in 20 ms and hangs on no home directory.
CHILD = (sys.executable, "-I", "-S", "-B", str(Path(__file__).with_name("read_child.py")))

Question = Mapping[str, Any]
Answer = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Hanging:
    """A child that has not come back. since: Unix seconds at which it was sent."""

    process: subprocess.Popen[bytes]
    since: float


@dataclass
class Reader:
    """Asks children. Safe to be used by several threads; one child at a time per storage.

    deadline: s that a caller waits for all answers of one storage. argv: the program (see read_child.py).
    """

    deadline: float = DEADLINE
    argv: Sequence[str] = CHILD
    most: int = MOST
    _hanging: dict[str, Hanging] = field(default_factory=dict)
    _locks: dict[str, Lock] = field(default_factory=dict)

    def ask(self, storage: str, questions: Sequence[Question]) -> list[Answer | None]:
        """An answer for each question, in order; None for those that the deadline cut off. An answer with `error` says
        why there is none.

        Raises Unreachable at the deadline when nothing was answered, and at once while an earlier child still hangs;
        BadReply when the child broke.
        """
        if not questions:
            return []
        lock = self._locks.setdefault(storage, Lock())
        if not lock.acquire(timeout=self.deadline):
            raise Unreachable(SOURCE, f"{storage} is being read and does not answer")
        try:
            self._still(storage)
            return self._send(storage, questions)
        finally:
            lock.release()

    def hanging(self) -> Mapping[str, int]:
        """Storage → since when (Unix seconds) it has not answered."""
        self._bury()
        return {storage: int(found.since) for storage, found in dict(self._hanging).items()}

    def close(self) -> None:
        """Children that hang are killed; those that cannot be are left after a second."""
        for found in self._hanging.values():
            with suppress(ProcessLookupError):
                found.process.kill()
            _ended(found.process)

    def _still(self, storage: str) -> None:
        self._bury()
        if found := self._hanging.get(storage):
            began = datetime.fromtimestamp(found.since, UTC)
            raise Unreachable(SOURCE, f"{storage} has been hanging since {began:%Y-%m-%d %H:%M:%S} UTC")

    def _bury(self) -> None:
        for storage, found in list(self._hanging.items()):
            if found.process.poll() is not None:
                _ended(found.process)
                self._hanging.pop(storage, None)

    def _send(self, storage: str, questions: Sequence[Question]) -> list[Answer | None]:
        since = time.time()
        process = _start(self.argv)
        raw, ended = _talk(process, _worded(questions), self.deadline, self.most)
        if not ended:
            self._hanging[storage] = Hanging(process, since)
        answers = _understood(storage, raw, len(questions), ended)
        if not ended and not any(answers):
            raise Unreachable(SOURCE, f"{storage} did not answer within {self.deadline:g} s")
        return answers


def _start(argv: Sequence[str]) -> subprocess.Popen[bytes]:
    try:
        return subprocess.Popen(
            list(argv),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd="/",
            env={"LC_ALL": "C.UTF-8"},
            start_new_session=True,  # a Ctrl-C is the bot's to handle
            bufsize=0,
        )
    except OSError as error:
        raise Unreachable(SOURCE, f"the reading child cannot be started: {error}") from error


def _worded(questions: Sequence[Question]) -> bytes:
    return b"".join(json.dumps(dict(question)).encode() + b"\n" for question in questions) + b"\n"


def _talk(process: subprocess.Popen[bytes], words: bytes, deadline: float, most: int) -> tuple[bytes, bool]:
    """(what it wrote, it has ended). Neither pipe may block us: a child can hang before it has read its questions."""
    assert process.stdin and process.stdout
    until = time.monotonic() + deadline
    heard = bytearray()
    with selectors.DefaultSelector() as selector:
        os.set_blocking(process.stdin.fileno(), False)
        selector.register(process.stdin, selectors.EVENT_WRITE)
        selector.register(process.stdout, selectors.EVENT_READ)
        while (left := until - time.monotonic()) > 0:
            for key, _ in selector.select(left):
                if key.fileobj is process.stdin:
                    words = _written(process.stdin.fileno(), words)
                    if not words:
                        selector.unregister(process.stdin)  # left open: its end is our end
                elif part := os.read(process.stdout.fileno(), 1 << 16):
                    heard += part
                    if len(heard) > most:
                        return bytes(heard), _stopped(process)
                else:
                    return bytes(heard), _ended(process)
    process.stdout.close()  # a late answer finds nobody, and the child ends
    return bytes(heard), False


def _written(fd: int, words: bytes) -> bytes:
    """What is still to be written. A child that has closed its end needs no more."""
    try:
        return words[os.write(fd, words) :]
    except BlockingIOError:
        return words
    except BrokenPipeError:
        return b""


def _ended(process: subprocess.Popen[bytes]) -> bool:
    """It closed its output: it is about to end."""
    for pipe in (process.stdin, process.stdout):
        if pipe:
            pipe.close()
    with suppress(subprocess.TimeoutExpired):
        process.wait(1.0)
    return True


def _stopped(process: subprocess.Popen[bytes]) -> bool:
    process.kill()
    return _ended(process)


def _understood(storage: str, raw: bytes, asked: int, ended: bool) -> list[Answer | None]:
    """A line is an answer; the last one may be cut."""
    lines = raw.split(b"\n")[:-1][:asked]
    try:
        answers: list[Answer | None] = [json.loads(line) for line in lines]
    except ValueError as error:
        raise BadReply(SOURCE, f"{storage}: the reading child wrote no JSON: {error}") from error
    if ended and len(answers) < asked:
        raise BadReply(SOURCE, f"{storage}: the reading child ended after {len(answers)} of {asked} answers")
    return answers + [None] * (asked - len(answers))


# -- which storage a path lies on --------------------------------------------------------------------------------------


def storage_of(path: str, mounts: Sequence[str]) -> str:
    """The mount point that a path lies on; on the root file system its first directory, so that one unlucky path there
    does not stand for all. Only text: to ask the file system could hang."""
    real = os.path.normpath(path)
    best = max((m for m in mounts if real == m or real.startswith(m.rstrip("/") + "/")), key=len, default="/")
    return best if best != "/" else "/" + real.lstrip("/").split("/")[0]


def mounts() -> list[str]:
    """Mount points of this machine, from the kernel's table."""
    try:
        table = Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:
        return ["/"]
    return [_unescaped(fields[4]) for line in table.splitlines() if len(fields := line.split(" ")) > 4]


def _unescaped(text: str) -> str:
    """The kernel writes blank, tab, newline and backslash as octal."""
    for code, char in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        text = text.replace(code, char)
    return text


def data_of(answer: Mapping[str, Any]) -> bytes:
    """The bytes of a file in an answer of verb `tail`."""
    return base64.b64decode(answer["data"])
