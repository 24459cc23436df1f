"""Running another program with a deadline that holds whatever the program and its children do."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from threading import Thread

GRACE = 1.0  # seconds to collect what a killed program had written


@dataclass(frozen=True, slots=True)
class Finished:
    """How it ended. code None: it had not within the deadline; negative: killed by that signal."""

    code: int | None
    out: str
    err: str


def run(argv: Sequence[str], deadline: float, env: Mapping[str, str] | None = None) -> Finished:
    """Never a shell. Raises OSError when the program cannot be started (it is not there, not executable)."""
    process = subprocess.Popen(
        list(argv),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=None if env is None else dict(env),
        start_new_session=True,
    )
    try:
        out, err = process.communicate(timeout=deadline)
    except subprocess.TimeoutExpired:
        return Finished(None, *_abandon(process))
    return Finished(process.returncode, _text(out), _text(err))


def _abandon(process: subprocess.Popen[bytes]) -> tuple[str, str]:
    """Kill the whole group: a child that holds the pipe would keep us waiting. sudo's children cannot be killed by us,
    and a child in a session of its own is not in the group; both are left to themselves."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    try:
        out, err = process.communicate(timeout=GRACE)
    except subprocess.TimeoutExpired as late:
        for pipe in (process.stdout, process.stderr):
            if pipe:
                pipe.close()
        Thread(target=process.wait, daemon=True).start()  # buries it whenever it ends
        return _text(late.stdout), _text(late.stderr)
    return _text(out), _text(err)


def _text(raw: bytes | str | None) -> str:
    return raw.decode("utf-8", "replace") if isinstance(raw, bytes) else raw or ""
