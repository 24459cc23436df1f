"""The bot as a site runs it: `xidbot run` under its own account, the gate under another, everything else real."""

from __future__ import annotations

import json
import os
import sqlite3
import stat
import sys
from pathlib import Path
from typing import Any

import yaml

from store.store import check
from tests.real.slack import APP_TOKEN, BOT_TOKEN, CHANNEL, LocalSlack
from tests.real.slurm import SlurmCluster
from tests.real.supervise import Process, become, eventually

BIN = Path(sys.executable).parent
GATE_YAML = Path("/etc/xidbot/gate.yaml")
SUDOERS = Path("/etc/sudoers.d/xidbot")
ACCOUNT, GATE_ACCOUNT = "xidbot", "xidbot-gate"

QUICK = {
    "time": {"step": "1s", "window": "30s", "lag": "2s"},
    "incidents": {"clean_after": "8s", "precursor_good_after": "8s"},
    "recovery": {
        "gap": "1s",
        "gap_max": "2s",
        "load_time": "20s",
        "checkpoint_interval": "5s",
        "survived_after": "5s",
        "settle": "3s",
    },
    "caps": {"held_nodes": "4", "held_share": "0.5", "writes": "20"},
    "approvals": {"expires": "2m"},
}


def install_gate(slurm: SlurmCluster, folder: Path, **over: object) -> None:
    """What README's gate section does: a root-owned gate.yaml and one sudo rule."""
    folder.mkdir(exist_ok=True)
    os.chown(folder, _uid(GATE_ACCOUNT), -1)
    config = {
        "nodes": "*",
        "partitions": ["train"],
        "accounts": ["research"],
        "caps": {"held_nodes": 4, "held_share": 0.5, "writes": 20, "window": "10m"},
        "pause_file": str(folder / "paused"),
        "log": str(folder / "gate.jsonl"),
        "slurm_conf": str(slurm.conf),
    }
    GATE_YAML.write_text(yaml.safe_dump({**config, **over}))
    GATE_YAML.chmod(0o644)
    SUDOERS.write_text(f"{ACCOUNT} ALL=({GATE_ACCOUNT}) NOPASSWD: {BIN}/xidbot-gate\n")
    SUDOERS.chmod(0o440)


def _uid(account: str) -> int:
    import pwd

    return pwd.getpwnam(account).pw_uid


class Bot:
    """One site: its folder, site file and database; start it, kill it, look at what it recorded."""

    def __init__(self, root: Path, slurm: SlurmCluster, prom_url: str, slack_api: str, **site: Any) -> None:
        self.root = root
        root.mkdir(parents=True, exist_ok=True)
        os.chown(root, _uid(ACCOUNT), -1)
        self.slurm = slurm
        self.gate_log = root / "gate"
        install_gate(slurm, self.gate_log, **site.pop("gate_yaml", {}))
        self.db = root / "xidbot.db"
        self.site_file = root / "xidbot.yaml"
        self._write_site(prom_url, slack_api, site)
        self.process: Process | None = None
        self.starts = 0

    def _write_site(self, prom_url: str, slack_api: str, site: dict[str, Any]) -> None:
        gate = site.pop("gate", ["sudo", "-n", "-u", GATE_ACCOUNT, f"{BIN}/xidbot-gate"])
        mode = site.pop("write_mode", "approve")
        session = {"match": {"partition": "train"}, **site.pop("session", {})}
        config: dict[str, Any] = {
            "site": {"name": "lab", "timezone": "Asia/Seoul", "write_mode": mode, "database": str(self.db)},
            "prometheus": {"url": prom_url, "timeout": "3s"},
            "scheduler": {"kind": "slurm", "conf": str(self.slurm.conf), "gate": gate, "timeout": "4s"},
            "sessions": [session],
            "slack": {
                "channel": CHANNEL,
                "api_url": slack_api.rstrip("/"),
                "secondary": "U01ADMIN",
                "roles": {"admin": ["U01ADMIN"], "operator": ["U02OPER"], "viewer": "*"},
                "users": {"xidbot": "U02OPER"},
            },
            "signals": {"gpu_missing": {"persistence": "3s"}},
            "policy": QUICK,
            **site,
        }
        text = json.dumps(config)
        self.site_file.write_text(yaml.safe_dump(json.loads(text), sort_keys=False))

    # -- running ---------------------------------------------------------------------------------

    def start(self, **env: str) -> Bot:
        self.starts += 1
        tokens = {"SLACK_BOT_TOKEN": BOT_TOKEN, "SLACK_APP_TOKEN": APP_TOKEN}
        self.process = Process(
            [*become(ACCOUNT), str(BIN / "xidbot"), "--config", str(self.site_file), "-v", "run"],
            log=self.root / f"bot-{self.starts}.log",
            env={**os.environ, **tokens, **env},
        )
        return self

    def kill(self) -> None:
        if self.process:
            self.process.kill()

    def stop(self) -> None:
        if self.process:
            self.process.stop(grace=5)

    def gone(self) -> bool:
        return self.process is not None and not self.process.running

    def cli(self, *words: str, user: str = ACCOUNT) -> tuple[int, str]:
        import subprocess

        done = subprocess.run(
            [*become(user), str(BIN / "xidbot"), "--config", str(self.site_file), *words],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        return done.returncode, done.stdout + done.stderr

    # -- looks -----------------------------------------------------------------------------------

    def docs(self, kind: str) -> list[dict[str, Any]]:
        """The documents of one kind as they stand in the database."""
        connection = sqlite3.connect(f"file:{self.db}?mode=ro", uri=True)
        try:
            rows = connection.execute("select body from docs where kind = ?", (kind,)).fetchall()
        finally:
            connection.close()
        return [json.loads(body) for (body,) in rows]

    def events(self, name: str) -> list[dict[str, Any]]:
        connection = sqlite3.connect(f"file:{self.db}?mode=ro", uri=True)
        try:
            rows = connection.execute("select body from events where type = ? order by id", (name,)).fetchall()
        finally:
            connection.close()
        return [json.loads(body) for (body,) in rows]

    def incident(self, kind: str, subject: str = "", within: float = 30) -> dict[str, Any]:
        return eventually(
            lambda: next(
                (d for d in self.docs("incident") if d["kind"] == kind and subject in ("", d["subject"])), None
            ),
            within=within,
            why=f"an incident {kind}; {self.tail()}",
        )

    def plan(self, status: str = "proposed", mode: str | None = None, within: float = 30) -> dict[str, Any]:
        def look() -> dict[str, Any] | None:
            found = [p for p in self.docs("plan") if p["status"] == status and mode in (None, p["mode"])]
            return found[-1] if found else None

        return eventually(look, within=within, why=f"a plan {status}; {self.tail()}")

    def recovery(self, within: float = 60, **wanted: Any) -> dict[str, Any]:
        """The one recovery, once it has these values."""

        def look() -> dict[str, Any] | None:
            found = self.docs("recovery")
            return next((r for r in found if all(r[k] == v for k, v in wanted.items())), None)

        return eventually(look, within=within, why=f"recovery {wanted}, have {self.docs('recovery')}; {self.tail()}")

    def gate_calls(self) -> list[dict[str, Any]]:
        log = self.gate_log / "gate.jsonl"
        return [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []

    def consistent(self) -> None:
        """What every test ends with: the projections are what the log adds up to."""
        assert check(self.db) == []

    def tail(self) -> str:
        return self.process.tail(25) if self.process else "never started"


def executable(path: Path, text: str) -> Path:
    path.write_text(text)
    path.chmod(path.stat().st_mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)
    return path


def main_messages(slack: LocalSlack) -> list[dict[str, Any]]:
    """The channel messages of incidents, known by their block id, oldest first."""
    return [m for m in slack.messages() if str((m.get("blocks") or [{}])[0].get("block_id", "")).endswith(".main")]
