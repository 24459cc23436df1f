"""A real Alertmanager, both ways."""

from __future__ import annotations

import socket
import threading
import time
import urllib.request
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from bot import doctor_inputs
from bot import policy as policies
from bot.app import App, alertmanagers
from bot.arrivals import Arrivals
from bot.clock import LiveClock
from bot.config import AlertmanagerSite
from bot.errors import Unreachable
from bot.http import Listener
from bot.http_session import DeadlineSession
from bot.model import Incident, Reading
from bot.pages import SILENCES_EVERY, Pager, Paging
from bot.site import read_site
from bot.sources.alertmanager import Alertmanager as Api
from bot.sources.alertmanager import AlertMarks, Several
from bot.state import State
from bot.vitals import Vitals
from store.database import Database
from store.inbound import Inbound
from tests.real.alertmanager import Alertmanager, PagerDuty
from tests.real.supervise import eventually, free_port
from tests.scenarios.test_pages import hurt, texts
from tests.scenarios.world import World

pytestmark = pytest.mark.real

TOKEN = "s3cret"
NODES = ("node-03",)


@pytest.fixture
def pagerduty() -> Iterator[PagerDuty]:
    pagerduty = PagerDuty()
    yield pagerduty
    pagerduty.stop()


@pytest.fixture
def inbound(tmp_path: Path) -> Iterator[Inbound]:
    database = Database(tmp_path / "x.db")
    yield Inbound(database)
    database.close()


@pytest.fixture
def listener(inbound: Inbound) -> Iterator[Listener]:
    taking = Arrivals(inbound, policies.build(), "haein", State, lambda: Vitals(0))
    listener = Listener(("127.0.0.1", 0), taking.handlers(), lambda: TOKEN)
    listener.start()
    yield listener
    listener.stop()


@pytest.fixture
def alertmanager(tmp_path: Path, listener: Listener, pagerduty: PagerDuty) -> Iterator[Alertmanager]:
    alertmanager = Alertmanager(tmp_path / "am", f"{listener.url}/alertmanager", TOKEN, pagerduty.url)
    yield alertmanager
    alertmanager.stop()


@pytest.fixture
def pager(alertmanager: Alertmanager) -> Iterator[Pager]:
    with DeadlineSession(5, source="alertmanager") as session:
        yield Pager(Api(alertmanager.url, session), Paging("haein", ["node", "Hostname"]))


def now() -> int:
    return int(time.time())


def rfc3339(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat()


def by_node(labels: Any, nodes: Any) -> tuple[str, bool]:
    return labels.get("node", ""), labels.get("node", "") in nodes


def test_what_fires_there_becomes_a_mark_until_it_ends(alertmanager: Alertmanager, inbound: Inbound) -> None:
    marks = AlertMarks(inbound.alerts, by_node)
    labels = {"alertname": "NodeDown", "node": "node-03"}
    started = time.time() - 60
    alert = {"labels": labels, "annotations": {"summary": "it does not answer"}, "startsAt": rfc3339(started)}
    page = {"labels": {"alertname": "XidbotGpuFault", "node": "node-03", "source": "xidbot"}}
    alertmanager.fire(alert, page, {"labels": {"alertname": "Watchdog"}})
    eventually(lambda: len(inbound.alerts(0, now())) == 2, every=0.02, why="the webhook arrived")
    (mark,) = marks.marks(now() - 900, now(), NODES)
    assert (mark.node, mark.at, mark.text) == ("node-03", int(started), "NodeDown: it does not answer (Alertmanager)")
    ended = time.time()
    alertmanager.fire({**alert, "endsAt": rfc3339(ended)})
    eventually(lambda: marks.marks(now() - 900, now() + 60, NODES)[0].until == int(ended), every=0.02, why="it ended")


def fault(closed: int | None = None, acked_by: str = "") -> State:
    state = State()
    reason = Reading("node-03", "xid_reboot", "bad", 1.0, 79.0, hard=True, text="Xid 79 on GPU 3")
    state.put(Incident(412, 1, "gpu_fault", "node-03", now() - 30, reasons=(reason,), hurt=("s",), closed=closed,
                       acked_by=acked_by))  # fmt: skip
    return state


def test_a_page_wakes_whom_its_routes_know_and_is_resolved(
    alertmanager: Alertmanager, pager: Pager, pagerduty: PagerDuty, inbound: Inbound
) -> None:
    pager.turn(fault(), now())
    assert pager.problem == ""
    (alert,) = alertmanager.alerts()
    assert (alert["labels"]["severity"], alert["status"]["state"]) == ("page", "active")
    assert alert["annotations"]["summary"] == "node-03: Xid 79 on GPU 3"
    eventually(lambda: pagerduty.calls("XidbotGpuFault") == ["firing"], every=0.02, why="somebody was woken")
    pager.turn(fault(closed=now()), now())
    eventually(lambda: pagerduty.calls("XidbotGpuFault") == ["firing", "resolved"], every=0.02, why="and told the end")
    assert alertmanager.alerts() == [] and inbound.alerts(0, now()) == []


def test_an_acknowledged_page_ends_and_a_warning_stays(
    alertmanager: Alertmanager, pager: Pager, pagerduty: PagerDuty
) -> None:
    pager.turn(fault(), now())
    eventually(lambda: pagerduty.calls("XidbotGpuFault") == ["firing"], every=0.02, why="somebody was woken")
    pager.turn(fault(acked_by="U1"), now())
    eventually(lambda: pagerduty.calls("XidbotGpuFault") == ["firing", "resolved"], every=0.02, why="no more pages")
    assert [alert["labels"]["severity"] for alert in alertmanager.alerts()] == ["warn"]


def test_a_silence_made_there_holds_here(alertmanager: Alertmanager, pager: Pager, pagerduty: PagerDuty) -> None:
    other = alertmanager.amtool("silence", "add", "Hostname=node-04", "-c", "repair", "-a", "alice", "-d", "1h")
    ours = alertmanager.amtool("silence", "add", "Hostname=~node-0[1-3]", "-c", "repair", "-a", "alice", "-d", "1h")
    state = fault()
    (incident,) = state.all(Incident)
    pager.turn(state, now())
    silence = pager.silenced(incident, state)
    assert silence and silence.id == ours != other and silence.createdBy == "alice"
    (alert,) = alertmanager.alerts()
    assert alert["status"] == {"state": "suppressed", "silencedBy": [ours], "inhibitedBy": []}
    assert pagerduty.got == []
    alertmanager.amtool("silence", "expire", ours)
    pager.turn(state, now() + 15)
    assert pager.silenced(incident, state) is None
    eventually(lambda: pagerduty.calls("XidbotGpuFault") == ["firing"], every=0.02, why="the silence is over")


def test_a_silence_made_there_keeps_slack_quiet_and_its_end_calls(
    alertmanager: Alertmanager, pager: Pager, tmp_path: Path
) -> None:
    """The world's clock stands in another month than Alertmanager's: its silence lasts beyond both."""
    silence = alertmanager.amtool("silence", "add", "node=~node-0.", "-c", "repair", "-a", "alice", "-d", "400d")
    w = hurt(lambda **facts: World(tmp_path / "world", **facts))
    try:
        (story,) = texts(w, pager)
        assert "on call is not called: silenced in Alertmanager by alice for repair" in story
        alertmanager.amtool("silence", "expire", silence)
        w.now += SILENCES_EVERY
        assert "<!subteam^S1> the silence in Alertmanager is over" in texts(w, pager)[-1]
    finally:
        w.store.close()


def test_of_two_alertmanagers_both_are_told_and_either_may_silence(
    alertmanager: Alertmanager, listener: Listener, pagerduty: PagerDuty, tmp_path: Path
) -> None:
    other = Alertmanager(tmp_path / "other", f"{listener.url}/alertmanager", TOKEN, pagerduty.url)
    state = fault()
    (incident,) = state.all(Incident)
    try:
        with DeadlineSession(5, source="alertmanager") as session:
            both = Pager(Several([Api(one.url, session) for one in (alertmanager, other)]), Paging("haein", ["node"]))
            other.amtool("silence", "add", "node=node-03", "-c", "repair", "-a", "alice", "-d", "1h")
            both.turn(state, now())
            assert [len(one.alerts()) for one in (alertmanager, other)] == [1, 1]
            assert both.silenced(incident, state)
            alertmanager.stop()
            both.turn(state, now() + 60)
            assert both.problem == "" and both.silenced(incident, state)
            other.stop()
            both.turn(state, now() + 120)
            assert "Connection refused" in both.problem and not both.silenced(incident, state)
    finally:
        other.stop()


def test_doctor_finds_it_well_and_changes_nothing(alertmanager: Alertmanager) -> None:
    alertmanager.amtool("silence", "add", "node=node-03", "-c", "repair", "-a", "alice", "-d", "1h")
    site = AlertmanagerSite.model_validate({"url": alertmanager.url})
    (found,) = [finding for one in alertmanagers(site) for finding in doctor_inputs._alertmanager(one, site)]
    assert str(found) == f"ok    alertmanager {alertmanager.url}: 1 active silences, takes pages"
    assert alertmanager.alerts() == []


def test_what_it_refuses_is_told_in_its_words(alertmanager: Alertmanager, pager: Pager) -> None:
    pager.paging = Paging("haein", ["bad-name"])
    pager.turn(fault(), now())
    assert "400" in pager.problem and "bad-name" in pager.problem
    alertmanager.stop()
    pager.turn(fault(), now() + 5)
    assert "Connection refused" in pager.problem
    with pytest.raises(Unreachable):
        pager.alertmanager.silences()


SITE = """\
site: {{name: haein, database: {root}/bot.db}}
prometheus: {{url: "http://127.0.0.1:1", timeout: 1s}}
scheduler: {{conf: {root}/absent.conf, timeout: 1s}}
http: {{listen: "127.0.0.1:{port}", token_file: {root}/token}}
alertmanager: {{url: "{url}"}}
policy: {{time: {{step: 1s}}}}
"""


def told(bot: str) -> set[str]:
    """The lines of its metrics."""
    asked = urllib.request.Request(f"{bot}/metrics", headers={"Authorization": f"Bearer {TOKEN}"})
    with urllib.request.urlopen(asked, timeout=5) as answer:
        return set(answer.read().decode().splitlines())


def test_the_whole_bot_listens_and_pages(tmp_path: Path, pagerduty: PagerDuty) -> None:
    """Nothing of its world can be read: that it is blind wakes somebody, and what comes in is kept meanwhile."""
    port = free_port()
    bot = f"http://127.0.0.1:{port}"
    alertmanager = Alertmanager(tmp_path / "am", f"{bot}/alertmanager", TOKEN, pagerduty.url)
    (tmp_path / "token").write_text(TOKEN)
    (tmp_path / "xidbot.yaml").write_text(SITE.format(root=tmp_path, port=port, url=alertmanager.url))
    app = App(read_site(tmp_path / "xidbot.yaml"))
    running = threading.Thread(target=app.run, args=(LiveClock(),))
    running.start()
    try:
        eventually(lambda: listens(port), every=0.02, why="it listens")
        alertmanager.fire({"labels": {"alertname": "NodeDown", "node": "node-03"}})
        eventually(lambda: "firing" in pagerduty.calls("XidbotBlind"), within=15, why="somebody was woken")
        eventually(lambda: told(bot) >= {"xidbot_up 0", 'xidbot_incidents_open{kind="blind"} 2'}, why="it says so")
        eventually(lambda: "xidbot_alertmanager_alerts_firing 1" in told(bot), why="the alert was kept")
    finally:
        app.stop()
        running.join()
        app.close()
        alertmanager.stop()


def listens(port: int) -> bool:
    """Raises OSError as long as it does not."""
    socket.create_connection(("127.0.0.1", port)).close()
    return True
