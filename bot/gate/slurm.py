"""Slurm's own commands, as the gate runs them."""

from __future__ import annotations

import os
import signal
import subprocess
from dataclasses import dataclass

from bot.gate.answer import FAILED, End
from bot.gate.settings import Settings
from bot.model import Job, Node
from bot.slurm_records import node_fields, parse_jobs, parse_nodes


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
