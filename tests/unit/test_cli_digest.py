"""`xidbot digest`: figures without writing, and a request for the running bot."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

import commands
from bot import cli
from bot import events as ev
from bot.cli_digest import digest
from bot.errors import ConfigError, UsageError
from bot.model import Incident
from bot.weeks import last_week, week_of
from commands import Command
from store.store import Store

WEEK = week_of("2026-W48", "Asia/Seoul")
SITE = """
site: {{name: haein, timezone: Asia/Seoul, database: {database}}}
prometheus: {{url: "http://127.0.0.1:9"}}
scheduler: {{kind: slurm}}
"""


@pytest.fixture
def database(tmp_path: Path) -> Path:
    """An incident in the first hour of Monday in Seoul: Sunday in UTC."""
    store = Store.open(tmp_path / "x.db")
    at = WEEK.start + 600
    store.append([ev.IncidentOpened(at, Incident(1, 1, "gpu_fault", "node-17", at), "p")])
    store.close()
    return tmp_path / "x.db"


@pytest.fixture
def site(tmp_path: Path, database: Path) -> Path:
    (tmp_path / "xidbot.yaml").write_text(SITE.format(database=database))
    return tmp_path / "xidbot.yaml"


def run(*words: str, config: Path | None = None, db: Path | None = None) -> Result:
    facts: dict[str, Any] = {"config": str(config) if config else None, "db": str(db) if db else None}
    return CliRunner().invoke(digest, list(words), obj={**facts, "verbose": False})


def test_a_week_as_text_and_as_json(site: Path) -> None:
    shown = run("--week", "2026-W48", config=site)
    assert shown.exit_code == 0
    assert shown.output.startswith("Week 2026-W48 (23 Nov – 29 Nov). Nothing to do.")
    assert "```" not in shown.output
    assert "recovery   chains" in shown.output
    told = json.loads(run("--week", "2026-W48", "--json", config=site).output)
    assert told["week"] == "2026-W48"
    assert told["kinds"] == {"gpu_fault": 1}
    assert {"classes", "holds", "top3_share", "gpu_hours_lost", "noise"} <= set(told)


def test_a_database_alone_is_read_in_utc(database: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("XIDBOT_CONFIG", raising=False)
    told = json.loads(run("--week", "2026-W47", "--json", db=database).output)
    assert told["kinds"] == {"gpu_fault": 1}


def test_without_a_week_it_is_the_last_whole_one(site: Path) -> None:
    import time

    told = json.loads(run("--json", config=site).output)
    assert told["week"] == last_week(int(time.time()), "Asia/Seoul").name


def test_what_is_wrong_has_its_exit_code(site: Path, tmp_path: Path) -> None:
    bad = run("--week", "2026-W60", config=site)
    assert isinstance(bad.exception, UsageError)
    assert bad.exception.exit_code == 2
    nothing = run(config=tmp_path / "none.yaml")
    assert isinstance(nothing.exception, ConfigError)
    assert nothing.exception.exit_code == 2
    gone = run(config=site, db=tmp_path / "none.db")
    assert gone.exit_code == 3
    assert "none.db: cannot be read" in gone.output


def test_post_asks_the_running_bot(site: Path, database: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    row = Command("digest", "operator", "digest [WEEK]", "digest 2026-W48", "", "commands.digest:post")
    monkeypatch.setitem(commands.BY_NAME, "digest", row)
    shown = run("--week", "2026-W48", "--post", config=site)
    assert shown.exit_code == 0
    assert "queued as request 1" in shown.output
    store = Store.open(database)
    assert [request.text for request in store.inbox()] == ["digest 2026-W48"]
    assert [type(event).__name__ for _, event in store.events()] == ["IncidentOpened"]
    store.close()


def test_the_table_gives_it_its_place_in_the_command_line() -> None:
    cli.main.add_command(digest)
    shown = CliRunner().invoke(cli.main, ["digest", "--help"])
    assert "--week YYYY-Wnn" in shown.output


def test_importing_it_loads_click_alone() -> None:
    code = "import sys, bot.cli_digest; print(sorted({'numpy', 'matplotlib', 'pydantic', 'jinja2'} & set(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=Path(__file__).parents[2], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"
