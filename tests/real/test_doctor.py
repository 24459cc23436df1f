"""`xidbot doctor` under the bot's own account, on real parts: what is well, and what is not with its remedy."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.real.bot import ACCOUNT, GATE_YAML, Bot
from tests.real.faultproxy import FaultProxy
from tests.real.prometheus import Prometheus
from tests.real.slack import APP_TOKEN, BOT_TOKEN, LocalSlack
from tests.real.slurm import SlurmCluster
from tests.real.supervise import eventually
from tests.real.training import Training

pytestmark = [pytest.mark.real, pytest.mark.timeout(180)]


@pytest.fixture
def site(
    real_root: Path,
    request: pytest.FixtureRequest,
    slurm: SlurmCluster,
    prom: Prometheus,
    slack: LocalSlack,
    monkeypatch: pytest.MonkeyPatch,
) -> Bot:
    """A healthy site whose Prometheus has scraped everything."""
    monkeypatch.setenv("SLACK_BOT_TOKEN", BOT_TOKEN)
    monkeypatch.setenv("SLACK_APP_TOKEN", APP_TOKEN)
    prom.scraped()
    return Bot(real_root / request.node.name, slurm, prom.url, slack.api)


def findings(site: Bot, code: int) -> list[str]:
    """What is not ok."""
    exit_code, said = site.cli("doctor")
    assert exit_code == code, said
    return [line for line in said.splitlines() if line.startswith(("warn  ", "fail  "))]


def test_a_healthy_site(site: Bot, prom: Prometheus, train: Callable[..., Training]) -> None:
    run = train("llm", nodes=2, TRAINER_STEP_S="0.05", TRAINER_SAVE_EVERY="20")
    site.slurm.wait_job(run.job)
    eventually(lambda: prom.value("max(train_checkpoint_step)"), within=30, why="a checkpoint is scraped")
    eventually(lambda: findings_settled(site), within=30, every=1, why="all is well")


def findings_settled(site: Bot) -> bool:
    """The moment that is looked at lies two seconds back."""
    code, said = site.cli("doctor")
    return code == 0 and "gauges of 1 runs" in said


def test_prometheus_down(site: Bot, prom: Prometheus) -> None:
    prom.pause()
    (line,) = findings(site, 3)
    assert line.startswith("fail  prometheus: no whole answer within 3 s  · check prometheus in the site file")


def test_slurm_paused(site: Bot) -> None:
    site.slurm.pause_controller()
    try:
        lines = findings(site, 3)
    finally:
        site.slurm.resume_controller()
    assert any(
        line.startswith("fail  scheduler: ") and "did not answer within 4 s  · see `scontrol ping`" in line
        for line in lines
    ), lines
    assert all(line.startswith(("fail  scheduler: ", "fail  gate: ")) for line in lines), lines


def test_the_gate_is_missing_or_has_no_settings(site: Bot) -> None:
    GATE_YAML.unlink()
    (line,) = settled(site, 1)
    assert line.startswith("fail  gate: gate settings: ") and "  · correct /etc/xidbot/gate.yaml" in line
    text = site.site_file.read_text().replace("xidbot-gate\n", "no-such-gate\n")
    site.site_file.write_text(text)
    (line,) = settled(site, 3)
    assert line.startswith("fail  gate: the gate was not run") and "scheduler.gate" in line


def settled(site: Bot, code: int) -> list[str]:
    """Once Prometheus' newest samples are as old as the bot looks back."""
    return eventually(lambda: found if len(found := findings(site, code)) == 1 else None, within=20, every=1, why="one")


def test_the_gate_is_paused(site: Bot) -> None:
    assert site.slurm.run(*gate_words(site), "pause", "--why", "fabric", user=ACCOUNT, check=False).returncode == 0
    (line,) = settled(site, 1)
    assert line.startswith("warn  gate: paused: fabric (xidbot, ") and line.endswith("· `xidbot resume` ends it")


def gate_words(site: Bot) -> list[str]:
    import yaml

    words: list[str] = yaml.safe_load(site.site_file.read_text())["scheduler"]["gate"]
    return words


def test_a_wrong_slack_token(site: Bot, slack: LocalSlack) -> None:
    """The emulator believes every token, so the proxy says what Slack would."""
    with FaultProxy(slack.url) as proxy:
        proxy.fault("auth.test", status=200, body='{"ok":false,"error":"invalid_auth"}', times=None)
        text = site.site_file.read_text()
        site.site_file.write_text(text.replace(slack.api.rstrip("/"), f"{proxy.url}/api"))
        (line,) = settled(site, 1)
    assert line.startswith("fail  slack token: slack: auth.test: invalid_auth  · are SLACK_BOT_TOKEN")


def test_rights_that_are_too_wide(site: Bot) -> None:
    level = ("sacctmgr", "-i", "modify", "user", ACCOUNT, "set")
    site.slurm.run(*level, "adminlevel=Administrator")
    try:
        lines = findings(site, 1)
    finally:
        site.slurm.run(*level, "adminlevel=None")
    assert (
        f"warn  {ACCOUNT} has the right Administrator  · the bot only reads: take it away; the gate has its own"
        in lines
    )


def test_init_makes_a_site_file_that_doctor_likes(site: Bot, prom: Prometheus, monkeypatch: pytest.MonkeyPatch) -> None:
    """`init` for the same parts: read-only, so without gate and Slack."""
    monkeypatch.delenv("SLACK_BOT_TOKEN")
    monkeypatch.delenv("SLACK_APP_TOKEN")
    site.site_file.unlink()
    given = ("--prometheus", prom.url, "--slurm-conf", str(site.slurm.conf), "--partition", "train", "--yes")
    code, said = site.cli("init", *given)
    assert code == 0, said
    assert "label instance leads to the nodes" in said or "label Hostname leads to the nodes" in said
    site.site_file.write_text(site.site_file.read_text().replace('"xidbot.db"', f'"{site.db}"'))
    lines = eventually(
        lambda: said if (said := site.cli("doctor"))[0] == 0 else None, within=45, every=2, why="all well"
    )
    assert "gate: none, read-only" in lines[1] and "mapping: 8 hosts" in lines[1]
    assert site.cli("init", *given)[0] == 2
