"""The whole way on real parts: Prometheus sees, Slack asks, the gate writes, Slurm reruns, the record says so."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.real.bot import BIN, GATE_ACCOUNT, Bot, executable, main_messages
from tests.real.exporter import Exporter
from tests.real.prometheus import Prometheus
from tests.real.slack import CHANNEL, OPERATOR, VIEWER, LocalSlack
from tests.real.slurm import SlurmCluster
from tests.real.supervise import eventually
from tests.real.training import Training

pytestmark = [pytest.mark.real, pytest.mark.timeout(240)]

FAST = {"TRAINER_STEP_S": "0.05", "TRAINER_SAVE_EVERY": "20"}
GATE = ["sudo", "-n", "-u", GATE_ACCOUNT, f"{BIN}/xidbot-gate"]


class Site:
    """Everything real that one scenario stands on."""

    def __init__(
        self,
        root: Path,
        slurm: SlurmCluster,
        prom: Prometheus,
        slack: LocalSlack,
        exporter: Exporter,
        train: Callable[..., Training],
    ) -> None:
        self.root, self.slurm, self.prom, self.slack, self.exporter = root, slurm, prom, slack, exporter
        self._train = train
        self.bot: Bot | None = None

    def run(self, **site: Any) -> Bot:
        seen = "count(count by (Hostname) (DCGM_FI_DEV_GPU_TEMP offset 4s))"  # as far back as the bot's lag reaches
        eventually(lambda: self.prom.value(seen) == 8, within=30, why="every node is scraped again")
        self.bot = Bot(self.root / "bot", self.slurm, self.prom.url, self.slack.api, **site)
        self.bot.start()
        eventually(self.slack.connected, within=20, why=f"the bot connects; {self.bot.tail()}")
        return self.bot

    def train(self, nodes: int = 4, **env: str) -> Training:
        """A run that has saved twice and that the bot knows."""
        run = self._train("llm", nodes=nodes, **{**FAST, **env})
        self.slurm.wait_job(run.job)
        assert self.bot is not None
        bot = self.bot
        eventually(
            lambda: any((d["best_step"] or 0) >= 40 for d in bot.docs("session")),
            within=40,
            why=f"the bot sees checkpoints; {bot.docs('session')} {bot.tail()}",
        )
        return run

    def message(self, contains: str, within: float = 30) -> dict[str, Any]:
        why = f"a message shows {contains!r}; {main_messages(self.slack)} {self.bot.tail() if self.bot else ''}"

        def look() -> dict[str, Any] | None:
            return next((m for m in main_messages(self.slack) if contains in str(m["blocks"])), None)

        return eventually(look, within=within, why=why)


@pytest.fixture
def site(
    real_root: Path,
    request: pytest.FixtureRequest,
    slurm: SlurmCluster,
    prom: Prometheus,
    slack: LocalSlack,
    exporter: Exporter,
    train: Callable[..., Training],
) -> Iterator[Site]:
    root = real_root / request.node.name.replace("[", "-").replace("]", "")
    root.mkdir()
    root.chmod(0o755)
    made = Site(root, slurm, prom, slack, exporter, train)
    yield made
    if made.bot:
        made.bot.stop()
        made.bot.consistent()


def test_a_fault_is_seen_asked_approved_and_recovered(site: Site) -> None:
    bot = site.run()
    run = site.train()
    site.exporter.xid("node-02", 3, 79)
    message = site.message("approve or reject")
    assert "node-02" in message["text"] and "session-" + run.job in str(message["blocks"])

    site.slack.click(VIEWER, CHANNEL, message["ts"], "approve")
    eventually(lambda: [a for a in bot.docs("answer") if not a["ok"]], why="the viewer is refused")
    assert site.slurm.node("node-02")["State"] == "MIXED"
    assert bot.gate_calls() == []
    eventually(
        lambda: any(
            "needs the role operator" in str(m) for m in site.slack.messages() if m.get("ephemeral_to") == VIEWER
        ),
        why=f"the viewer is told; {bot.tail()}",
    )

    clicked = site.slack.click(OPERATOR, CHANNEL, message["ts"], "approve")
    assert clicked < 3
    eventually(lambda: "DRAIN" in site.slurm.node("node-02")["State"], within=20, why=bot.tail())
    incident = bot.incident("gpu_fault")
    assert site.slurm.node("node-02")["Reason"].startswith(f"xidbot:{incident['id']}.{incident['episode']} ")
    rerun = site.slurm.wait_job(run.job)
    eventually(lambda: site.slurm.job(run.job)["restart_cnt"] == 1, within=20, why="one restart")
    rerun = site.slurm.wait_job(run.job)
    assert "node-02" not in rerun["nodes"]

    recovery = bot.recovery(outcome="survived")
    (link,) = recovery["chain"]
    assert (link["origin"], recovery["chain_class"], link["verified"]) == ("approved", "assisted", True)
    assert link["step"] > recovery["last_step"]
    site.message(":large_green_circle: *node-02")
    (shown,) = [m for m in main_messages(site.slack) if "node-02" in m["text"]]
    assert shown["ts"] == message["ts"], "edited in place, not posted again"
    story = eventually(
        lambda: told if "Closed" in (told := str(site.slack.thread(CHANNEL, message["ts"]))) else None,
        within=30,
        why="the story is told to its end",
    )
    assert "survived" in story and f"approved by <@{OPERATOR}>" in story
    assert site.slurm.job(run.job)["restart_cnt"] == 1


def test_b_a_person_who_acts_is_external_and_we_do_nothing(site: Site) -> None:
    bot = site.run()
    run = site.train()
    site.exporter.xid("node-03", 0, 79)
    bot.plan(mode="approve")
    site.slurm.run("scontrol", "update", "nodename=node-03", "state=drain", "reason=GPU 0 looks bad")
    site.slurm.requeue(run.job)
    recovery = bot.recovery(outcome="survived")
    assert [link["origin"] for link in recovery["chain"]] == ["external"]
    assert recovery["chain_class"] == "manual"
    assert bot.gate_calls() == []
    assert site.slurm.node("node-03")["Reason"].startswith("GPU 0 looks bad")
    assert site.slurm.job(run.job)["restart_cnt"] == 1


def test_c_what_slurm_requeues_itself_is_its_own_recovery(site: Site) -> None:
    bot = site.run(write_mode="auto")
    run = site.train()
    site.slurm.down("node-01")
    recovery = bot.recovery(outcome="survived", within=90)
    assert [link["origin"] for link in recovery["chain"]] == ["scheduler"]
    assert recovery["chain_class"] == "scheduler"
    assert bot.gate_calls() == []
    mine = [j for j in site.slurm.jobs() if j["name"] == "llm" and j["job_state"] in ("RUNNING", "PENDING")]
    assert [j["job_id"] for j in mine] == [int(run.job)], "no second copy"


KILLERS = {  # the moment, seen from the call of the gate
    "before": "kill -9 $PPID; exit 1",
    "after": '"$@" >/dev/null; kill -9 $PPID; exit 1',
}


@pytest.mark.parametrize("moment", KILLERS)
def test_d_the_bot_killed_around_the_gate_requeues_exactly_once(site: Site, moment: str) -> None:
    """The wrapper kills the bot at the requeue, once."""
    flag = site.root / "killed"
    text = (
        f'#!/bin/bash\ncase " $* " in *" requeue "*) if mkdir {flag} 2>/dev/null; then {KILLERS[moment]}; fi;; esac\n'
    )
    wrapper = executable(site.root / "gate-wrapper", text + 'exec "$@"\n')
    site.root.chmod(0o777)
    bot = site.run(gate=[str(wrapper), *GATE])
    run = site.train()
    site.exporter.xid("node-02", 3, 79)
    message = site.message("approve or reject")
    site.slack.click(OPERATOR, CHANNEL, message["ts"], "approve")
    eventually(bot.gone, within=30, why="the bot is killed")
    bot.kill()
    bot.start()
    recovery = bot.recovery(outcome="survived")
    assert [link["origin"] for link in recovery["chain"]] == ["approved"]
    assert site.slurm.job(run.job)["restart_cnt"] == 1
    assert site.slurm.job(run.job)["job_state"] == "RUNNING"
    assert len([m for m in main_messages(site.slack) if "node-02" in m["text"]]) == 1, "one message, not one per life"


def test_d_the_gate_killed_between_requeue_and_start(site: Site) -> None:
    flag = site.root / "killed"
    site.root.chmod(0o777)
    text = (
        f'#!/bin/bash\ncase "$*" in *StartTime*) if mkdir {flag} 2>/dev/null; then kill -9 $PPID; exit 1; fi;; esac\n'
    )
    shim = executable(site.root / "scontrol", text + 'exec /usr/bin/scontrol "$@"\n')
    bot = site.run(gate_yaml={"scontrol": str(shim)})
    run = site.train()
    site.exporter.xid("node-02", 3, 79)
    message = site.message("approve or reject")
    site.slack.click(OPERATOR, CHANNEL, message["ts"], "approve")
    eventually(flag.exists, within=30, why=f"the gate is killed; {bot.tail()}")
    recovery = bot.recovery(outcome="survived", within=90)
    assert [link["origin"] for link in recovery["chain"]] == ["approved"]
    assert site.slurm.job(run.job)["restart_cnt"] == 1


def test_e_the_gates_cap_refuses_and_a_person_is_asked(site: Site) -> None:
    """The bot's own caps are wider, so its guards do not see it coming."""
    bot = site.run(
        write_mode="auto", gate_yaml={"caps": {"held_nodes": 1, "held_share": 0.5, "writes": 20, "window": "10m"}}
    )
    run = site.train(nodes=2)
    status, said = bot.cli("exclude", "node-08", "flaky", "fan")
    assert status == 0, said
    eventually(lambda: "DRAIN" in site.slurm.node("node-08")["State"], within=20, why=bot.tail())

    site.exporter.xid("node-01", 3, 79)
    run.control("fail")
    failed = bot.plan("failed")
    assert "held" in failed["why"] and failed["mode"] == "auto"
    asked = bot.plan("proposed", mode="approve")
    assert asked["incident"] == failed["incident"]
    assert "DRAIN" not in site.slurm.node("node-01")["State"]
    site.message("An earlier try did not work")


def test_f_a_rerun_that_never_passes_its_step_ends_at_the_budget(site: Site) -> None:
    bot = site.run(write_mode="auto")
    run = site.train()
    run.control("max_step=50")  # below the steps it has reached: every rerun ends where it began
    site.exporter.xid("node-02", 3, 79)
    recovery = bot.recovery(outcome="given_up", within=120)
    assert recovery["why"] == "3 attempts without a new checkpoint"
    assert recovery["regained"] is None and recovery["chain_class"] == "automated"
    requeues = site.slurm.job(run.job)["restart_cnt"]
    assert requeues == 3
    time.sleep(3)
    assert site.slurm.job(run.job)["restart_cnt"] == 3, "and it stays ended"
    site.message("given up")
