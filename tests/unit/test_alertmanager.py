"""What Alertmanager's webhook tells becomes marks of nodes, and its silences match as it would match them."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bot import policy as policies
from bot.alerts import STALE_AFTER, Alert, read_webhook
from bot.arrivals import Arrivals
from bot.errors import BadReply
from bot.http_session import DeadlineSession
from bot.sources.alertmanager import Alertmanager, AlertMarks, Silences, read_silences
from bot.sources.prometheus import PrometheusSource
from bot.state import State
from bot.vitals import Vitals
from store.database import Database
from store.inbound import KEEP, LATE, Inbound
from tests.real.faultproxy import FaultProxy

NOW = 1_800_000_000  # 2027-01-15T08:00:00Z
NODES = ("node-01", "node-02", "node-03")
Json = dict[str, Any]


def told(**more: Any) -> Json:
    """One alert as version 4 of the webhook writes it."""
    alert = {
        "status": "firing",
        "labels": {"alertname": "NodeDown", "node": "node-03", "severity": "page"},
        "annotations": {"summary": "node-03 does not answer"},
        "startsAt": "2027-01-15T07:50:00.459985753Z",
        "endsAt": "0001-01-01T00:00:00Z",
        "generatorURL": "http://prom:9090/graph",
        "fingerprint": "c1bdb680d60a70d8",
    }
    return alert | more


def webhook(*alerts: Any, **more: Any) -> Json:
    return {"version": "4", "status": "firing", "receiver": "bot", "groupKey": "{}", "truncatedAlerts": 0, "groupLabels": {},
            "commonLabels": {}, "commonAnnotations": {}, "externalURL": "http://am:9093", "alerts": list(alerts)} | more  # fmt: skip


@pytest.fixture
def inbound(tmp_path: Path) -> Iterator[Inbound]:
    database = Database(tmp_path / "x.db")
    yield Inbound(database)
    database.close()


def receive(inbound: Inbound, *alerts: Any, now: int = NOW, **more: Any) -> tuple[int, str]:
    taking = Arrivals(inbound, policies.build(), "haein", State, lambda: Vitals(NOW), clock=lambda: now)
    reply = taking.alertmanager(webhook(*alerts, **more))
    return reply.status, reply.text


def host(labels: Mapping[str, str], nodes: Any) -> tuple[str, bool]:
    """As the site maps labels to nodes."""
    with DeadlineSession(1) as session:
        site = PrometheusSource("http://127.0.0.1:1", session, ["node", "Hostname", "instance"], r"^([^.:]+)", [])
        return site.host(labels, nodes)


def marks(inbound: Inbound, since: int = NOW - 900, now: int = NOW) -> list[tuple[str, int, int | None]]:
    found = AlertMarks(inbound.alerts, host).marks(since, now, NODES)
    assert all((m.signal, m.value, m.provenance, m.known) == ("alert", 1.0, "claimed", True) for m in found)
    return [(mark.node, mark.at - NOW, None if mark.until is None else mark.until - NOW) for mark in found]


# -- the webhook -------------------------------------------------------------------------------------------------------


def test_a_firing_alert_marks_its_node_from_its_start_to_now(inbound: Inbound) -> None:
    assert receive(inbound, told()) == (200, "1 kept\n")
    (mark,) = AlertMarks(inbound.alerts, host).marks(NOW - 900, NOW + 60, NODES)
    assert mark.text == "NodeDown: node-03 does not answer (Alertmanager)"
    assert (mark.node, mark.at, mark.until) == ("node-03", NOW - 600, NOW + 60)


def test_a_resolved_alert_marks_until_its_end_and_is_told_the_same_again(inbound: Inbound) -> None:
    receive(inbound, told())
    receive(inbound, told(status="resolved", endsAt="2027-01-15T07:59:00.1+00:00"), now=NOW + 5)
    for _ in range(2):
        assert marks(inbound) == [("node-03", -600, -60)]
    assert marks(inbound, since=NOW - 60, now=NOW + 900) == []


def test_the_same_told_twice_is_one(inbound: Inbound) -> None:
    for now in (NOW, NOW + 16, NOW + 14_400):
        receive(inbound, told(), told(), now=now)
    assert marks(inbound, now=NOW + 14_400) == [("node-03", -600, 14_400)]


def test_a_peer_that_tells_the_firing_after_its_end_brings_nothing_back(inbound: Inbound) -> None:
    receive(inbound, told())
    receive(inbound, told(status="resolved", endsAt="2027-01-15T08:00:00Z"))
    receive(inbound, told(), now=NOW + 16)
    assert marks(inbound, now=NOW + 60) == [("node-03", -600, 0)]


def test_what_fires_again_after_its_end_counts_again(inbound: Inbound) -> None:
    receive(inbound, told(status="resolved", endsAt="2027-01-15T08:00:00Z"))
    receive(inbound, told(), now=NOW + LATE + 1)
    assert marks(inbound, now=NOW + 120) == [("node-03", -600, 120)]


def test_a_new_firing_ends_the_one_before_in_whatever_order_they_arrive(inbound: Inbound) -> None:
    old, new = told(startsAt="2027-01-15T07:50:00Z"), told(startsAt="2027-01-15T07:58:00Z")
    for order in ([old, new], [new, old]):
        receive(inbound, *order)
        assert marks(inbound) == [("node-03", -600, -120), ("node-03", -120, 0)]


def test_an_alert_without_word_for_a_day_is_over(inbound: Inbound) -> None:
    receive(inbound, told())
    late = NOW + STALE_AFTER
    assert marks(inbound, late - 900, late - 1) == [("node-03", -600, STALE_AFTER - 1)]
    assert marks(inbound, late, late + 60) == []
    receive(inbound, told(fingerprint="other"), now=NOW + KEEP + 1)
    assert len(inbound.alerts(0, NOW + KEEP + 1)) == 1


def test_a_start_ahead_of_our_clock_counts_from_when_we_heard(inbound: Inbound) -> None:
    receive(inbound, told(startsAt="2027-01-15T08:00:40Z"))
    assert marks(inbound) == [("node-03", 0, 0)]
    assert marks(inbound, now=NOW + 60) == [("node-03", 0, 60)]


def test_an_alert_without_a_start_began_when_it_was_told(inbound: Inbound) -> None:
    receive(inbound, told(startsAt="0001-01-01T00:00:00Z"), now=NOW - 60)
    assert marks(inbound) == [("node-03", -60, 0)]
    receive(inbound, told(startsAt="0001-01-01T00:00:00Z", status="resolved"), now=NOW - 30)
    assert [until for _, _, until in marks(inbound)] == [-30, -30]


def test_the_node_is_found_as_the_site_says_and_what_has_none_is_kept(inbound: Inbound) -> None:
    labels: list[Json] = [
        {"alertname": "A", "instance": "node-01:9100"},
        {"alertname": "B", "Hostname": "node-02.cluster.example"},
        {"alertname": "C", "node": "exporter-pod-x", "instance": "node-03:9400"},
        {"alertname": "D", "instance": "prometheus:9090"},
        {"alertname": "E"},
    ]
    receive(inbound, *(told(labels=found, fingerprint=str(n)) for n, found in enumerate(labels)))
    assert sorted(node for node, *_ in marks(inbound)) == ["node-01", "node-02", "node-03"]
    assert len(inbound.alerts(NOW, NOW)) == 5


def test_our_own_pages_are_no_news(inbound: Inbound) -> None:
    page = told(labels={"alertname": "XidbotGpuFault", "node": "node-03", "source": "xidbot"})
    assert receive(inbound, page, told(fingerprint="b")) == (200, "1 kept\n")
    assert [alert.name for alert in inbound.alerts(0, NOW)] == ["NodeDown"]


def test_alerts_that_were_left_out_are_told(inbound: Inbound) -> None:
    receive(inbound, told(), truncatedAlerts=12)
    (mark,) = AlertMarks(inbound.alerts, host).marks(NOW - 900, NOW, NODES)
    assert mark.text == "NodeDown: node-03 does not answer (Alertmanager; 12 more of its group were cut off)"


def test_one_unreadable_alert_does_not_lose_the_others(inbound: Inbound) -> None:
    status, text = receive(inbound, told(), told(startsAt="yesterday"), 7, told(labels={}), told(status="odd"))
    assert status == 200 and text.startswith("1 kept\n")
    assert "alerts.1.startsAt: 'yesterday' is no time" in text
    assert all(place in text for place in ("alerts.2: ", "alerts.3.labels: ", "alerts.4.status: "))
    assert len(inbound.alerts(0, NOW)) == 1


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (None, "the body: "),
        ([told()], "the body: "),
        ({}, "alerts: Field required"),
        ({"alerts": {}}, "alerts: "),
        ({"alerts": [{"status": "firing"}]}, "alerts.0.labels: Field required"),
        (
            {"alerts": [told(startsAt="2027-01-15T07:50:00")]},
            "alerts.0.startsAt: '2027-01-15T07:50:00' names no time zone",
        ),
        ({"alerts": [told(startsAt=5)]}, "alerts.0.startsAt: is no time"),
        ({"alerts": [told(labels={"node": 3})]}, "alerts.0.labels.node: "),
        ({"alerts": [], "truncatedAlerts": -1}, "truncatedAlerts: "),
    ],
)
def test_what_is_no_webhook_is_refused_with_what_and_where(inbound: Inbound, body: Any, says: str) -> None:
    taking = Arrivals(inbound, policies.build(), "haein", State, lambda: Vitals(NOW), clock=lambda: NOW)
    reply = taking.alertmanager(body)
    assert reply.status == 400 and says in reply.text
    assert inbound.alerts(0, NOW + STALE_AFTER) == []


def test_a_webhook_without_alerts_or_with_fields_of_another_sender_is_taken(inbound: Inbound) -> None:
    assert receive(inbound) == (200, "0 kept\n")
    grafana = {**told(), "values": {"A": 1}, "dashboardURL": "", "imageURL": None}
    del grafana["fingerprint"]
    assert receive(inbound, grafana, grafana, orgId=1)[0] == 200
    assert len(inbound.alerts(0, NOW)) == 1


def test_the_text_is_one_short_line() -> None:
    def text(**annotations: str) -> str:
        return Alert("f", 0, None, {"alertname": "A"}, annotations).text

    assert text(summary="one\ntwo") == "A: one (Alertmanager)"
    assert text(summary=" \n", description="d") == "A: d (Alertmanager)"
    assert text() == "A (Alertmanager)"
    assert len(text(summary="x" * 5000)) < 300


@settings(max_examples=50, deadline=None)
@given(st.recursive(st.none() | st.booleans() | st.integers() | st.floats() | st.text(), lambda c: st.lists(c) | st.dictionaries(st.text(), c)),
       st.sampled_from(["alerts", "labels", "startsAt", "endsAt", "annotations", "status", "fingerprint"]))  # fmt: skip
def test_whatever_is_sent_it_is_read_or_refused(junk: Any, where: str) -> None:
    body = webhook(told())
    target = body if where == "alerts" else body["alerts"][0]
    target[where] = junk
    try:
        found = read_webhook(copy.deepcopy(body), NOW)
    except ValueError as error:
        assert where in str(error) or "alerts" in str(error)
    else:
        assert all(alert.starts < NOW and json.dumps(dict(alert.labels)) for alert in found.alerts)


# -- silences ----------------------------------------------------------------------------------------------------------


def silence(*matchers: tuple[str, str, str], state: str = "active", name: str = "s1") -> Json:
    """matchers: (label, operator, value)."""
    return {
        "id": name,
        "status": {"state": state},
        "createdBy": "alice",
        "comment": "repair",
        "startsAt": "2027-01-15T07:00:00.000Z",
        "endsAt": "2027-01-15T09:00:00.000Z",
        "updatedAt": "2027-01-15T07:00:00.000Z",
        "matchers": [
            {"name": label, "value": value, "isRegex": "~" in how, "isEqual": "!" not in how}
            for label, how, value in matchers
        ],
    }


LABELS = {"alertname": "XidbotGpuFault", "node": "node-03", "cluster": "haein"}


@pytest.mark.parametrize(
    ("matchers", "silenced"),
    [
        ([("node", "=", "node-03")], True),
        ([("node", "=", "node-0")], False),
        ([("node", "!=", "node-03")], False),
        ([("node", "!=", "node-04")], True),
        ([("node", "=~", "node-0[1-4]")], True),
        ([("node", "=~", "node-0")], False),  # anchored
        ([("node", "=~", "a|node-03|b")], True),
        ([("node", "=~", "node|x")], False),
        ([("node", "!~", "node-0[12]")], True),
        ([("node", "!~", "node-.*")], False),
        ([("node", "=~", "(?i)NODE-03")], True),
        ([("node", "=~", r"node-\d+\z")], True),
        ([("node", "=~", "[[:alpha:]]+-[[:digit:]]{2}")], True),
        ([("node", "=~", "node-03\n?")], True),
        ([("rack", "=", "")], True),  # a missing label is an empty one
        ([("rack", "!=", "r1")], True),
        ([("rack", "=~", ".*")], True),
        ([("rack", "=~", ".+")], False),
        ([("node", "=", "node-03"), ("cluster", "=", "other")], False),
        ([("node", "=", "node-03"), ("cluster", "=~", "ha.*")], True),
        ([], False),
    ],
)
def test_a_silence_matches_as_alertmanager_would(matchers: list[tuple[str, str, str]], silenced: bool) -> None:
    found = read_silences([silence(*matchers)]).matching(LABELS)
    assert (found is not None) == silenced


def test_only_active_silences_silence() -> None:
    node = ("node", "=", "node-03")
    found = read_silences([silence(node, state="expired"), silence(node, state="pending"), silence(node, name="s9")])
    matching = found.matching(LABELS)
    assert matching and (matching.id, matching.createdBy, matching.comment) == ("s9", "alice", "repair")
    assert read_silences([silence(node, state="expired")]).matching(LABELS) is None


def test_a_silence_of_an_old_alertmanager_knows_no_isequal() -> None:
    old = silence(("node", "=", "node-03"))
    del old["matchers"][0]["isEqual"]
    assert read_silences([old]).matching(LABELS)


def test_a_regular_expression_that_cannot_be_applied_silences_nothing_and_is_told() -> None:
    found = read_silences([silence(("node", "=~", r"\pL+.*"), name="s1"), silence(("node", "=~", "node.*"), name="s2")])
    assert found.unread[0].startswith(r"silence s1: node=~'\\pL+.*' cannot be applied here")
    matching = found.matching(LABELS)
    assert matching and matching.id == "s2"


@pytest.mark.parametrize("body", [None, {}, "x", [1], [{"id": "a"}], [silence() | {"matchers": [{"name": "a"}]}]])
def test_what_is_no_list_of_silences_is_refused(body: Any) -> None:
    with pytest.raises(ValueError, match="silences: "):
        read_silences(body)


def test_an_answer_that_is_no_json_is_a_bad_reply() -> None:
    with FaultProxy("http://127.0.0.1:1") as server, DeadlineSession(2, source="alertmanager") as session:
        server.fault("/", status=200, body="[", headers={"Content-Type": "application/json"}, times=None)
        with pytest.raises(BadReply, match="alertmanager: "):
            Alertmanager(server.url, session).silences()
    assert Silences().matching(LABELS) is None
