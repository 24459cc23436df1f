"""Records from a command such as `journalctl -o json --since=@$since`, with a deadline."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from threading import Thread
from typing import IO, Any

from bot.sources.kernel_log.follow import Part

MOST = 32 << 20  # bytes of output; the newest 8 MiB are read, more than four times that is not even waited for
READ = 8 << 20
LOOK = 0.05  # s between looks at a running command


@dataclass
class Command:
    """Asked anew for the whole window each time, because entries of other hosts may come late. `$since` in an argument
    becomes Unix seconds. Never a shell. Output goes to a file: a grandchild that keeps a pipe open could hold us."""

    argv: Sequence[str]
    deadline: float
    problems: dict[str, str] = field(default_factory=dict)
    readable: bool = False

    def read(self, since: int, now: int) -> Iterator[Part]:
        self.problems.clear()
        self.readable = False
        argv = [part.replace("$since", str(since)) for part in self.argv]
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            try:
                process = subprocess.Popen(
                    argv, stdin=subprocess.DEVNULL, stdout=out, stderr=err, start_new_session=True
                )
            except OSError as error:
                self._wrong(f"cannot be started: {error.strerror or error}; correct the command in the site file")
                return
            ended = _wait(process, out, self.deadline)
            data = self._newest(out)
            self._judge(process.returncode if ended else None, _first_line(err))
            self.readable = bool(data) or (ended and not self.problems)
        yield Part(f"/{self.argv[0]}", data, False)

    def dump(self) -> Mapping[str, Any]:
        return {}

    def load(self, kept: Mapping[str, Any]) -> None:
        """Nothing is kept."""

    def _newest(self, out: IO[bytes]) -> bytes:
        """Complete lines; the first one may be cut where there is too much."""
        size = os.fstat(out.fileno()).st_size
        data = os.pread(out.fileno(), READ, max(0, size - READ))
        if size > READ:
            self._wrong(f"wrote {size >> 20} MiB and only the newest 8 are read; let it tell less (_TRANSPORT=kernel)")
            data = data[data.find(b"\n") + 1 :]
        return data

    def _judge(self, code: int | None, said: str) -> None:
        """journalctl --grep ends with 1 and says nothing when nothing matched."""
        if code is None:
            self._wrong(f"had not ended within {self.deadline:g} s or wrote too much; let it tell less")
        elif code and said:
            self._wrong(f"ended with {code}: {said}")

    def _wrong(self, text: str) -> None:
        self.problems[self.argv[0]] = text


def _wait(process: subprocess.Popen[bytes], out: IO[bytes], deadline: float) -> bool:
    """True when it has ended by itself. Else its group is killed, and whoever cannot be killed is left to itself."""
    until = time.monotonic() + deadline
    while time.monotonic() < until and os.fstat(out.fileno()).st_size <= MOST:
        with suppress(subprocess.TimeoutExpired):
            process.wait(LOOK)
            return True
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    Thread(target=process.wait, daemon=True).start()  # buries it whenever it ends
    return False


def _first_line(err: IO[bytes]) -> str:
    return os.pread(err.fileno(), 400, 0).decode("utf-8", "replace").strip().split("\n")[0]
