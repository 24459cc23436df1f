"""What the docs say is what the code does."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from commands import COMMANDS

ROOT = Path(__file__).parents[2]


def test_the_generated_pages_are_fresh() -> None:
    run = subprocess.run([sys.executable, "docs/generate.py", "--check"], cwd=ROOT, capture_output=True, text=True)
    assert run.returncode == 0, f"{run.stdout}{run.stderr}; run: python docs/generate.py"


@pytest.mark.parametrize("command", COMMANDS, ids=lambda c: c.name)
def test_every_command_exists_and_its_example_begins_with_it(command: object) -> None:
    from commands.run import _function, parse

    parsed, _ = parse(command.example)  # type: ignore[attr-defined]
    assert parsed is command
    assert callable(_function(parsed))


def test_help_loads_click_alone() -> None:
    code = (
        "import sys, runpy\nsys.argv = ['xidbot', '--help']\n"
        "try:\n    from bot.cli import main; main()\nexcept SystemExit: pass\n"
        "heavy = {'numpy', 'scipy', 'matplotlib', 'slack_bolt', 'slack_sdk', 'pydantic', 'yaml', 'requests', 'jinja2', 'sqlite_utils'}\n"
        "print('LOADED', sorted(heavy & set(sys.modules)))"
    )
    run = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert run.stdout.strip().endswith("LOADED []")


def test_the_readme_names_no_key_that_the_site_file_does_not_have() -> None:
    import re

    from bot.config import Config
    from bot.yamlfile import Located, parse, validate

    text = (ROOT / "README.md").read_text()
    (smallest, *_) = [b for b in re.findall(r"```yaml\n(.*?)```", text, re.DOTALL) if "prometheus:" in b]
    located = parse(smallest, "README.md")
    assert isinstance(located, Located)
    assert validate(Config, located).site.write_mode == "observe"
    for block in re.findall(r"```yaml\n(.*?)```", text, re.DOTALL):
        more = parse(block, "README.md")
        keys = set(more.data) & set(Config.model_fields)
        assert keys, block
        whole = {**located.data, **more.data, "site": {**located.data["site"], **more.data.get("site", {})}}
        validate(Config, Located("README.md", whole, more.lines))


def test_a_signal_of_the_readme_is_one(tmp_path: Path) -> None:
    import re

    from bot.site import read_site

    blocks = re.findall(r"```yaml\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    (smallest,) = [b for b in blocks if "\nprometheus:" in b]
    (logs,) = [b for b in blocks if "\nsignals:" in b]
    (tmp_path / "xidbot.yaml").write_text(smallest.split("sessions:")[0] + logs)
    site = read_site(tmp_path / "xidbot.yaml")
    assert site.policy.signals["our_score"].provenance == "claimed" and site.policy.signals["sm_clock"].weight == 0
    assert site.config.logs.kernel_log.syslog and site.config.alertmanager and site.config.http
