"""Everything around the bot fails; it says so, does nothing wrong, and goes on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.real.bot import BIN, Bot, main_messages
from tests.real.exporter import Exporter
from tests.real.faultproxy import FaultProxy
from tests.real.prometheus import Prometheus
from tests.real.slack import CHANNEL, OPERATOR, LocalSlack
from tests.real.slurm import SlurmCluster
from tests.real.supervise import eventually
from tests.real.test_scenarios import Site, site  # noqa: F401
from tests.real.training import Training

pytestmark = [pytest.mark.real, pytest.mark.timeout(180)]


def whispers(slack: LocalSlack) -> str:
    return str([m for m in slack.messages() if m.get("ephemeral_to")])


def test_slurm_hangs_and_people_are_answered(site: Site) -> None:  # noqa: F811
    bot = site.run()
    run = site.train()
    site.slurm.pause_controller()
    try:
        assert site.slack.command(OPERATOR, "/retry", f"session-{run.job}") < 3
        eventually(lambda: "cannot be read right now" in whispers(site.slack), within=30, why=bot.tail())
        site.exporter.xid("node-02", 3, 79)
        bot.incident("gpu_fault")
        bot.incident("blind", "scheduler")
    finally:
        site.slurm.resume_controller()
    bot.plan(mode="approve")
    assert bot.gate_calls() == []
    assert site.slurm.job(run.job)["restart_cnt"] == 0


def test_prometheus_hangs_and_comes_back(site: Site) -> None:  # noqa: F811
    bot = site.run()
    site.train()
    site.prom.pause()
    try:
        bot.incident("blind", "prometheus")
        site.message("Cannot see prometheus")
    finally:
        site.prom.resume()
    eventually(
        lambda: all(d["closed"] for d in bot.docs("incident")), within=30, why=f"it closes; {bot.docs('incident')}"
    )
    assert {d["kind"] for d in bot.docs("incident")} == {"blind"}


def test_slurm_is_gone_and_comes_back(site: Site) -> None:  # noqa: F811
    bot = site.run()
    run = site.train()
    site.slurm.stop_controller()
    try:
        bot.incident("blind", "scheduler")
    finally:
        site.slurm.start_controller()
    eventually(lambda: all(d["closed"] for d in bot.docs("incident")), within=40, why=f"{bot.docs('incident')}")
    (session,) = bot.docs("session")
    assert session["ended_at"] is None and session["jobs"] == [run.job]


@pytest.fixture
def proxied(slack: LocalSlack) -> Iterator[FaultProxy]:
    proxy = FaultProxy(slack.url)
    yield proxy
    proxy.stop()


def test_slack_refuses_slows_and_drops_and_nothing_is_lost_or_twice(
    real_root: Path,
    slurm: SlurmCluster,
    prom: Prometheus,
    slack: LocalSlack,
    exporter: Exporter,
    train: Callable[..., Training],
    proxied: FaultProxy,
) -> None:
    bot = Bot(real_root / "slack-trouble", slurm, prom.url, f"{proxied.url}/api")
    bot.start()
    try:
        eventually(slack.connected, within=20, why=bot.tail())
        proxied.fault("chat.postMessage", status=429, headers={"Retry-After": "1"}, times=2)
        proxied.fault("chat.postMessage", status=503, times=1)
        exporter.xid("node-06", 1, 79)
        message = eventually(
            lambda: next((m for m in main_messages(slack) if "node-06" in m["text"]), None),
            within=40,
            why=f"posted in the end; {bot.tail()}",
        )
        bot.incident("gpu_fault")
        slack.drop_sockets()
        eventually(slack.connected, within=30, why=f"it reconnects; {bot.tail()}")
        assert slack.command(OPERATOR, "/xid", "incidents") < 3
        eventually(lambda: "gpu_fault node-06" in whispers(slack), within=20, why=bot.tail())
        mains = [m["ts"] for m in main_messages(slack) if "node-06" in m["text"]]
        assert mains == [message["ts"]]
    finally:
        bot.stop()
    bot.consistent()


BAD = ["node-1;rm -rf /", "<!channel>", "x" * 900, "@all", "node-[01-63]", "node-[01-08]!node-07", ""]


def test_bad_words_get_a_clear_answer_and_no_action(site: Site) -> None:  # noqa: F811
    bot = site.run()
    for text in BAD:
        site.slack.command(OPERATOR, "/exclude", text)
    eventually(lambda: len(bot.docs("answer")) == len(BAD), within=30, why=f"{bot.docs('answer')} {bot.tail()}")
    assert all(not answer["ok"] and len(answer["reply"]) > 20 for answer in bot.docs("answer"))
    assert bot.docs("action") == []
    assert bot.gate_calls() == []
    assert set(site.slurm.states().values()) == {"idle"}


def test_a_second_bot_on_the_same_database_refuses(site: Site) -> None:  # noqa: F811
    bot = site.run()
    status, said = bot.cli("tick")
    assert status == 3
    assert "writes to this database" in said


def test_the_command_line_does_what_slack_does(site: Site) -> None:  # noqa: F811
    bot = site.run()
    status, said = bot.cli("exclude", "node-05", "for", "24h", "fan", "rattles")
    assert status == 0 and "Review" in said
    eventually(lambda: "DRAIN" in site.slurm.node("node-05")["State"], within=20, why=bot.tail())
    assert "fan rattles" in site.slurm.node("node-05")["Reason"]
    status, said = bot.cli("readmit", "node-05", "fan", "replaced")
    assert status == 1 and "needs the role admin" in said
    status, said = bot.cli("incidents")
    assert status == 0 and "No open incident" in said
    status, said = bot.cli("exclude", "node-5")
    assert status == 1 and "did you mean" in said
    status, said = bot.cli("pause", "fabric", "work")
    assert status == 0
    status, said = bot.cli("exclude", "node-06", "x")
    assert status == 1 and "paused by" in said
    bot.stop()
    status, said = bot.cli("incidents")
    assert status == 0 and "queued" in said


def test_tokens_that_are_empty_are_refused(site: Site) -> None:  # noqa: F811
    import subprocess

    bot = Bot(site.root / "bot", site.slurm, site.prom.url, site.slack.api)
    done = subprocess.run(
        [str(BIN / "xidbot"), "--config", str(bot.site_file), "run"],
        env={"SLACK_BOT_TOKEN": "", "SLACK_APP_TOKEN": "xapp-1", "PATH": "/usr/bin"},
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert done.returncode == 2
    assert "set but empty" in done.stderr


def test_channel_ids_are_the_ones_of_the_site(site: Site) -> None:  # noqa: F811
    site.run()
    site.exporter.xid("node-04", 0, 79)
    message = site.message("node-04")
    assert site.slack.message(CHANNEL, message["ts"])["ts"] == message["ts"]
