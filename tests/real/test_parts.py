"""The parts themselves: what the scenarios take for granted."""

import contextlib
import http.client
import json
import os
import subprocess
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import websocket
from slack_sdk import WebClient

from tests.real.exporter import BLANK, XID, XID_COUNT, Exporter
from tests.real.faultproxy import FaultProxy
from tests.real.prometheus import Prometheus
from tests.real.slack import APP_TOKEN, BOT_TOKEN, CHANNEL, OPERATOR, LocalSlack
from tests.real.slurm import SlurmCluster
from tests.real.supervise import become, eventually
from tests.real.training import Training

pytestmark = pytest.mark.real

DRAIN = ("scontrol", "update", "nodename=node-03", "state=drain", "reason=xidbot:1.1 Xid 79 = fatal; review 2030-01-01")


def test_a_job_trains_and_its_gauges_arrive(
    slurm: SlurmCluster, prom: Prometheus, train: Callable[..., Training]
) -> None:
    assert set(slurm.states().values()) == {"idle"} and len(slurm.states()) == 8
    session = train("session-1", nodes=4, TRAINER_STEP_S="0.05")
    job = slurm.wait_job(session.job)
    assert job["nodes"] == "node-[01-04]" and job["user_name"] == "trainer"
    step = f'train_checkpoint_step{{job="{session.job}"}}'
    eventually(lambda: (prom.value(step) or 0) >= 20, why="two checkpoints in Prometheus")
    assert prom.value(step.replace("step", "completed_timestamp")) == pytest.approx(time.time(), abs=10)


def test_a_requeued_job_resumes_from_its_checkpoint(slurm: SlurmCluster, train: Callable[..., Training]) -> None:
    session = train("session-1", nodes=2, knobs="max_step=15", TRAINER_STEP_S="0.02")
    slurm.wait_job(session.job, "FAILED")
    assert (session.gauge("train_step"), session.gauge("train_checkpoint_step")) == (15, 10)
    session.control()
    slurm.requeue(session.job)
    eventually(lambda: (session.gauge("train_checkpoint_step") or 0) >= 20, within=20)
    assert "from step 10" in (session.folder / "log").read_text()


def test_slurm_refuses_the_bot_and_obeys_the_gate(slurm: SlurmCluster) -> None:
    refused = slurm.run(*DRAIN, user="xidbot", check=False)
    assert (refused.returncode, refused.stderr.strip()) == (1, "slurm_update error: Invalid user id")
    assert slurm.node("node-03")["State"] == "IDLE"
    slurm.run(*DRAIN, user="xidbot-gate")
    node = slurm.node("node-03")
    assert node["State"] == "IDLE+DRAIN"
    assert node["Reason"].startswith("xidbot:1.1 Xid 79 = fatal; review 2030-01-01 [xidbot-gate@")


def test_slurm_itself_requeues_what_ran_on_a_failed_node(slurm: SlurmCluster, train: Callable[..., Training]) -> None:
    job = train("session-1", nodes=2).job
    slurm.wait_job(job)
    slurm.down("node-01")
    assert slurm.wait_job(job, "PENDING")["restart_cnt"] == 1
    slurm.run("scontrol", "update", f"jobid={job}", "StartTime=now+1")
    assert slurm.wait_job(job)["nodes"] == "node-[02-03]"


def test_slurm_hangs_and_recovers(slurm: SlurmCluster) -> None:
    slurm.pause_controller()
    with pytest.raises(subprocess.TimeoutExpired):
        slurm.run("squeue", timeout=1)
    slurm.resume_controller()
    assert slurm.run("squeue", "--noheader").stdout == ""


@pytest.fixture
def sudo_rule() -> Iterator[None]:
    rule = Path("/etc/sudoers.d/xidbot-test")
    rule.write_text("xidbot ALL=(xidbot-gate) NOPASSWD: /usr/bin/id\n")
    rule.chmod(0o440)
    yield
    rule.unlink()


def as_gate(*argv: str) -> subprocess.CompletedProcess[str]:
    words = [*become("xidbot"), "sudo", "-n", "-u", "xidbot-gate", *argv]
    return subprocess.run(words, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=10)


def test_sudo_lets_the_bot_call_one_program_of_the_gate(sudo_rule: None) -> None:
    begin = time.monotonic()
    assert as_gate("/usr/bin/id", "-un").stdout == "xidbot-gate\n"
    assert time.monotonic() - begin < 1, "sudo looks something up"
    assert as_gate("/usr/bin/whoami").returncode == 1


def test_the_gate_can_run_our_python() -> None:
    python = Path(".venv/bin/python").absolute()
    done = subprocess.run(
        [*become("xidbot-gate"), python, "-c", "import bot, pydantic"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


def test_faults_arrive_in_prometheus(exporter: Exporter, prom: Prometheus) -> None:
    prom.scraped()
    assert prom.value(f"count({XID})") == 64 and prom.query(XID_COUNT) == []
    exporter.xid("node-03", 2, 79)
    exporter.lose_gpu("node-04", 7)
    exporter.set("node-05", "DCGM_FI_DEV_GPU_TEMP", 0, BLANK)
    exporter.set("node-05", "DCGM_FI_DEV_GPU_TEMP", 1, float("nan"))
    exporter.down("node-06")
    eventually(lambda: prom.value(f'{XID_COUNT}{{Hostname="node-03",gpu="2",xid="79"}}') == 1)
    eventually(lambda: prom.value('up{job="dcgm",instance="node-06:9400"}') == 0)
    assert prom.query(f"{XID} == 79")[0]["metric"]["err_msg"] == "GPU has fallen off the bus"
    eventually(lambda: prom.value(f'count({XID}{{Hostname="node-04"}})') == 7)
    eventually(lambda: prom.value('DCGM_FI_DEV_GPU_TEMP{Hostname="node-05",gpu="0"}') == float(BLANK))
    eventually(lambda: str(prom.value('DCGM_FI_DEV_GPU_TEMP{Hostname="node-05",gpu="1"}')) == "nan")
    for node in exporter.nodes:
        exporter.restore(node)
    eventually(lambda: prom.value(f"count({XID} == 0)") == 64)


def test_prometheus_hangs_and_forgets(exporter: Exporter, prom: Prometheus) -> None:
    exporter.xid("node-01", 0, 48)
    eventually(lambda: prom.query(f"{XID} == 48"))
    prom.pause()
    with pytest.raises(TimeoutError), urllib.request.urlopen(f"{prom.url}/-/ready", timeout=0.5):
        pass
    prom.resume()
    assert prom.query("up")
    exporter.reset()
    prom.forget()
    prom.scraped()
    assert prom.query(f"max_over_time({XID}[1m]) > 0") == []


@pytest.fixture
def bot(slack: LocalSlack) -> Iterator[list[dict[str, Any]]]:
    """The smallest bot: acknowledges every envelope and keeps its payload."""
    opened = WebClient(base_url=slack.api).apps_connections_open(app_token=APP_TOKEN)
    connection = websocket.create_connection(opened["url"])
    seen: list[dict[str, Any]] = []

    def listen() -> None:
        with contextlib.suppress(OSError, websocket.WebSocketException):
            while envelope := json.loads(connection.recv()):
                if "envelope_id" in envelope:
                    connection.send(json.dumps({"envelope_id": envelope["envelope_id"]}))
                    seen.append(envelope["payload"])

    thread = threading.Thread(target=listen)
    thread.start()
    eventually(slack.connected, why="the bot's socket")
    yield seen
    connection.abort()
    thread.join()
    connection.shutdown()


def test_slack_answers_and_delivers(slack: LocalSlack, bot: list[dict[str, Any]]) -> None:
    web = WebClient(BOT_TOKEN, base_url=slack.api)
    assert web.auth_test()["user_id"] == "U0BOT"
    text = {"type": "plain_text", "text": "Approve"}
    button = {"type": "button", "action_id": "approve", "value": "plan-7", "text": text}
    ts = web.chat_postMessage(
        channel=CHANNEL, text="x", blocks=[{"type": "actions", "block_id": "inc.1", "elements": [button]}]
    )["ts"]
    web.chat_postMessage(channel=CHANNEL, text="story", thread_ts=ts)
    assert slack.click(OPERATOR, CHANNEL, ts, "approve") < 1
    assert slack.command(OPERATOR, "/retry", "session-123") < 1
    click, command = eventually(lambda: bot if len(bot) == 2 else None)
    assert click["actions"][0]["value"] == "plan-7" and click["actions"][0]["block_id"] == "inc.1"
    assert (command["command"], command["text"], command["user_id"]) == ("/retry", "session-123", OPERATOR)
    assert [reply["text"] for reply in slack.thread(CHANNEL, ts)] == ["story"]


def test_slack_drops_a_socket_and_forgets_nothing(slack: LocalSlack, bot: list[dict[str, Any]]) -> None:
    WebClient(BOT_TOKEN, base_url=slack.api).chat_postMessage(channel=CHANNEL, text="still here")
    slack.drop_sockets()
    eventually(lambda: not slack.connected(), why="the bot's socket is closed")
    assert [message["text"] for message in slack.messages()] == ["still here"]


def test_the_proxy_misbehaves_as_told(prom: Prometheus) -> None:
    with FaultProxy(prom.url) as proxy:
        proxy.fault("/-/ready", status=429, headers={"Retry-After": "1"}, body="slow down")
        with pytest.raises(urllib.error.HTTPError) as refused:
            get(proxy, "/-/ready")
        assert (refused.value.code, refused.value.headers["Retry-After"]) == (429, "1")
        refused.value.close()
        assert get(proxy, "/-/ready").startswith("Prometheus")
        proxy.fault("/-/ready", drop=True, after=True)
        with pytest.raises(http.client.RemoteDisconnected):
            get(proxy, "/-/ready")
        proxy.fault("/-/ready", status=200, body="drop by drop", drip=0.05)
        begin = time.monotonic()
        assert get(proxy, "/-/ready") == "drop by drop"
        assert time.monotonic() - begin > 0.4
        proxy.fault("/-/ready", redirect=f"{prom.url}/-/healthy", delay=0.2, times=None)
        assert "Healthy" in get(proxy, "/-/ready")
        assert [request.path for request in proxy.requests] == ["/-/ready"] * 5


def get(proxy: FaultProxy, path: str) -> str:
    with urllib.request.urlopen(proxy.url + path, timeout=5) as answer:
        text: str = answer.read().decode()
        return text


def test_nothing_survives_a_stop(real_root: Path) -> None:
    """Not even a job's shell, which has long left the group of the daemon that started it."""
    root = real_root / "short-lived"
    exporter = Exporter(nodes=2)
    cluster = SlurmCluster(root / "slurm", nodes=2, accounting=False)
    prometheus = Prometheus(root / "prometheus", exporter)
    slack = LocalSlack(root / "slack")
    cluster.wait_job(cluster.submit("#!/bin/bash\nsleep 1000\n"))
    eventually(lambda: len(processes(root)) >= 7, why="Prometheus, Slack, munged, slurmctld, 2 slurmd and the job")
    for part in (cluster, prometheus, slack, exporter):
        part.stop()
    eventually(lambda: processes(root) == [], within=3, why="no process below the folder")


def processes(root: Path) -> list[str]:
    """The command lines of living processes that name or work in a folder below `root`."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            words = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            if words and (str(root) in words or os.readlink(process / "cwd").startswith(str(root))):
                found.append(words)
        except OSError:
            continue
    return found


def test_pinned_emulator_is_the_locked_one() -> None:
    """package.json and the lock name one version, with integrity and without an address."""
    lock = json.loads(Path(__file__).with_name("npm").joinpath("package-lock.json").read_text())
    entry = lock["packages"]["node_modules/local-slack-linux-x64"]
    assert entry["version"] == "0.1.8" and "integrity" in entry and "resolved" not in entry
