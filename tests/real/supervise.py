"""Starting real programs and never leaving one behind.

A child gets the parent-death signal, so it dies with the test run even when that is killed. The kernel
ties this to the *thread* that started the child: start long-lived parts from the main thread.
"""

import contextlib
import os
import pwd
import random
import re
import shlex
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Self, TypeVar

T = TypeVar("T")
DIES_WITH_US = ("setpriv", "--pdeathsig", "KILL", "--")
OWN_NAMESPACE = ("unshare", "--pid", "--mount", "--fork", "--kill-child=KILL", "--mount-proc", "--")


class Process:
    """A program with its log, in a process group of its own."""

    def __init__(
        self,
        argv: Sequence[str | Path],
        log: Path,
        *,
        env: Mapping[str, str] | None = None,
        user: str | None = None,
        cwd: Path | None = None,
        stdin: int = subprocess.DEVNULL,
    ) -> None:
        self.argv = [str(word) for word in argv]
        self.log = log
        with log.open("ab") as out:
            self.child = subprocess.Popen(
                [*DIES_WITH_US, *become(user), *self.argv],
                stdin=stdin,
                stdout=out,
                stderr=subprocess.STDOUT,
                env=env,
                cwd=cwd,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        return self.child.pid

    @property
    def running(self) -> bool:
        return self.child.poll() is None

    def wait(self, within: float = 10) -> int:
        """The exit code, once it has left by itself."""
        return self.child.wait(within)

    def signal(self, number: signal.Signals) -> None:
        self.child.send_signal(number)

    def pause(self) -> None:
        """The program hangs: its sockets still accept, and nothing answers."""
        self.signal(signal.SIGSTOP)
        eventually(lambda: stopped(self.pid), every=0.005, why="all threads stopped")

    def resume(self) -> None:
        self.signal(signal.SIGCONT)

    def kill(self) -> None:
        """kill -9 of the program and of whatever it started in its group."""
        if self.child.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)
        self.child.wait()

    def stop(self, grace: float = 0) -> None:
        """SIGTERM and up to `grace` seconds to leave, then SIGKILL."""
        if grace and self.running:
            self.child.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.child.wait(grace)
        self.kill()

    def tail(self, lines: int = 20) -> str:
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


class Namespace:
    """Programs with one fate: a shell as process 1 of its own PID namespace starts them, and the kernel
    kills all of them with it, also those that had left its process group, as Slurm's job steps do."""

    def __init__(self, log: Path, env: Mapping[str, str]) -> None:
        self._shell = Process([*OWN_NAMESPACE, "bash"], log, env=env, stdin=subprocess.PIPE)

    def start(self, argv: Sequence[str | Path], log: Path) -> None:
        """Starts it in the background; that it came up is for the caller to see."""
        words = shlex.join(str(word) for word in argv)
        self._tell(f"{words} </dev/null >>{shlex.quote(str(log))} 2>&1 &")

    def signal(self, pid_file: Path, number: signal.Signals) -> None:
        """To the program whose number in here is in `pid_file`; a stopped one has stopped when this returns."""
        pid = self._outside(int(pid_file.read_text()))
        os.kill(pid, number)
        if number == signal.SIGSTOP:
            eventually(lambda: stopped(pid), every=0.005, why="all threads stopped")

    def _outside(self, number: int) -> int:
        """The number that a process in here has for us."""
        ours = os.readlink(f"/proc/{self._shell.pid}/ns/pid_for_children")
        for process in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                numbers = re.findall(r"^NSpid:.*\s(\d+)$", (process / "status").read_text(), re.MULTILINE)
                if numbers == [str(number)] and os.readlink(process / "ns/pid") == ours:
                    return int(process.name)
        raise LookupError(f"no process {number} in the namespace")

    def stop(self) -> None:
        """By SIGKILL only: unshare ignores SIGTERM."""
        self._shell.kill()
        assert self._shell.child.stdin is not None
        self._shell.child.stdin.close()

    def _tell(self, line: str) -> None:
        assert self._shell.child.stdin is not None
        self._shell.child.stdin.write(line.encode() + b"\n")
        self._shell.child.stdin.flush()


def stopped(pid: int) -> bool:
    states = [(task / "stat").read_text().rpartition(")")[2].split()[0] for task in Path(f"/proc/{pid}/task").iterdir()]
    return set(states) == {"T"}


def become(user: str | None) -> list[str]:
    """The prefix that runs a command as another account; none when it is ours."""
    if user is None or user == "root":
        return []
    group = str(pwd.getpwnam(user).pw_gid)
    return ["setpriv", "--reuid", user, "--regid", group, "--init-groups", "--pdeathsig", "KILL", "--"]


def free_port() -> int:
    """A loopback port below the ephemeral range, so that no client's socket takes it before its server."""
    while True:
        port = random.randrange(20000, 32000)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


def eventually(check: Callable[[], T | None], *, within: float = 10, every: float = 0.1, why: str = "") -> T:
    """The first truthy answer of `check`. An error in it means "not yet"; the last one seen is reported."""
    end = time.monotonic() + within
    seen: object = None
    while True:
        try:
            seen = found = check()
            if found:
                return found
        except Exception as error:  # noqa: BLE001 whatever it is, it may still heal
            seen = error
        if time.monotonic() > end:
            raise AssertionError(f"not within {within:g} s: {why or check}; last seen: {seen!r}")
        time.sleep(every)
