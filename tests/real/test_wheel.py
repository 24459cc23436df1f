"""The wheel in an environment of its own, in an empty folder, with nothing but loopback: what a stranger gets."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

WHEEL = Path(__file__).parents[2] / ".work/wheel"  # `make test` builds and installs it, while there is a network
OURS = {"bot", "commands", "playbooks", "store", "templates"}

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]


def run(folder: Path, *argv: str) -> str:
    words = [str(WHEEL / "bin" / argv[0]), *argv[1:]]
    done = subprocess.run(words, cwd=folder, env={"PATH": "/usr/bin:/bin"}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def test_a_day_of_the_demo_runs_from_the_wheel_without_a_network(tmp_path: Path) -> None:
    told = json.loads(run(tmp_path, "xidbot", "demo", "--headless", "--seed", "2", "--days", "1", "--json"))
    assert told["days"] == 1 and told["incidents"] > 0
    assert list(tmp_path.iterdir()) == [], "it leaves nothing behind"


def test_no_dependency_owns_a_package_of_our_name(tmp_path: Path) -> None:
    code = "import json; from importlib.metadata import packages_distributions as p; print(json.dumps(p()))"
    owners = json.loads(run(tmp_path, "python", "-c", code))
    assert {name: owners[name] for name in OURS} == {name: ["xidbot"] for name in OURS}


def test_the_gate_starts_from_the_wheel(tmp_path: Path) -> None:
    done = subprocess.run([WHEEL / "bin/xidbot-gate", "fly"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 4 and json.loads(done.stdout)["reason"]
