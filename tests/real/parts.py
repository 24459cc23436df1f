"""Which real parts this machine cannot run, and why."""

import os
import pwd
import shutil
import socket
from functools import cache
from pathlib import Path

PROGRAMS = (
    "slurmctld", "slurmd", "slurmdbd", "sbatch", "munged", "mariadbd", "mariadb-install-db", "prometheus",
    "prometheus-alertmanager", "prometheus-node-exporter", "amtool", "victoria-metrics", "sudo", "setpriv", "unshare",
    "ss",
)  # fmt: skip
ACCOUNTS = ("xidbot", "xidbot-gate", "trainer")
NPM = Path(__file__).parent / "npm/node_modules/local-slack-linux-x64/bin/local-slack"


def local_slack() -> Path:
    """The emulator: $LOCAL_SLACK_BIN, else what `npm ci --ignore-scripts --prefix tests/real/npm` installed."""
    return Path(os.environ.get("LOCAL_SLACK_BIN") or NPM).resolve()


@cache
def missing() -> list[str]:
    """The reasons; empty when all real parts can run."""
    reasons = []
    if os.geteuid() != 0:
        reasons.append("not root")
    if {name for _, name in socket.if_nameindex()} != {"lo"}:
        reasons.append("not in the private network of tests/run")
    reasons += [f"no account {name}" for name in ACCOUNTS if not _account(name)]
    reasons += [f"{program} is not installed" for program in PROGRAMS if not shutil.which(program)]
    if not os.access(local_slack(), os.X_OK):
        reasons.append(f"local-slack is not at {local_slack()}")
    return reasons


def _account(name: str) -> bool:
    return any(entry.pw_name == name for entry in pwd.getpwall())
