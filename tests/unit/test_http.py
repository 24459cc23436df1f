"""The listener against senders that behave and those that do not; what it takes in; and what it tells of the bot."""

from __future__ import annotations

import http.client
import json
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest

from bot import policy as policies
from bot.arrivals import Arrivals
from bot.config import address, is_loopback
from bot.errors import ConfigError
from bot.events import IncidentOpened, Paused, SourceChanged
from bot.http import EXPOSITION, MAX_BYTES, MAX_CONNECTIONS, Handlers, Listener, Reply
from bot.model import Cluster, Incident, Kind, Observation, SourceHealth
from bot.site import read_site
from bot.state import State, fold
from bot.vitals import Vitals, exposition, sick
from store.database import Database
from store.inbound import KEEP_MARKERS, Inbound

ANY_PORT = ("127.0.0.1", 0)
NOW = 1_800_000_000
Ask = Callable[..., tuple[int, str]]


class Taker:
    """Handlers that remember what they were given."""

    def __init__(self) -> None:
        self.given: list[Any] = []

    def handlers(self) -> Handlers:
        return Handlers(self._take, self._take, lambda: Reply(503, "blind\n"), lambda: Reply(200, "x 1\n", EXPOSITION))

    def _take(self, body: Any) -> Reply:
        self.given.append(body)
        if body == "fail":
            raise OSError("disk full")
        return Reply()


@pytest.fixture
def taker() -> Taker:
    return Taker()


@pytest.fixture
def start(taker: Taker) -> Iterator[Callable[..., Listener]]:
    started: list[Listener] = []

    def make(**options: Any) -> Listener:
        started.append(Listener(ANY_PORT, taker.handlers(), **options))
        started[-1].start()
        return started[-1]

    yield make
    for listener in started:
        listener.stop()


def ask(listener: Listener, method: str, path: str, body: bytes | str | None = None, **headers: str) -> tuple[int, str]:
    with closing(http.client.HTTPConnection(place(listener)[0], place(listener)[1], timeout=20)) as connection:
        connection.request(method, path, body.encode() if isinstance(body, str) else body, headers)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()


def place(listener: Listener) -> tuple[str, int]:
    return address(listener.url.removeprefix("http://"))


def raw(listener: Listener, *pieces: bytes, pause: float = 0) -> bytes:
    """Everything that comes back for these bytes."""
    with socket.create_connection(place(listener), timeout=20) as sock:
        for piece in pieces:
            with suppress(OSError):  # it may have had enough of us
                sock.sendall(piece)
            time.sleep(pause)
        got = b""
        with suppress(ConnectionResetError):
            while piece := sock.recv(65536):
                got += piece
        return got


# -- routes ------------------------------------------------------------------------------------------------------------


def test_each_path_reaches_what_was_handed_in_for_it(start: Callable[..., Listener], taker: Taker) -> None:
    listener = start()
    assert ask(listener, "POST", "/alertmanager", '{"a": [1, "é"]}') == (200, "ok\n")
    assert ask(listener, "POST", "/checkpoint?from=trainer", "[]") == (200, "ok\n")
    assert taker.given == [{"a": [1, "é"]}, []]
    assert ask(listener, "GET", "/healthz") == (503, "blind\n")
    assert ask(listener, "GET", "/metrics") == (200, "x 1\n")
    assert ask(listener, "HEAD", "/healthz") == (503, "")


@pytest.mark.parametrize(
    ("method", "path", "status", "says"),
    [
        ("GET", "/", 404, "/alertmanager, /checkpoint, /healthz, /metrics"),
        ("POST", "/alertmanager/", 404, "no such path"),
        ("GET", "/alertmanager", 405, "only POST here, not GET"),
        ("DELETE", "/checkpoint", 405, "only POST"),
        ("POST", "/healthz", 405, "only GET"),
        ("PUT", "/metrics", 405, "only GET"),
    ],
)
def test_what_does_not_exist_is_told(
    start: Callable[..., Listener], method: str, path: str, status: int, says: str
) -> None:
    found, text = ask(start(), method, path, "{}")
    assert found == status and says in text


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (b"", "line 1 column 1"),
        (b'{"alerts": [,]}', "line 1 column 13"),
        (b'{"a": 1,\n "b": }', "line 2 column 7"),
        (b'{"a": "\xff"}', "byte 7 is not UTF-8"),
        (b'{"a": NaN}', "NaN"),
        (b'{"a": ["\\ud83d"]}', r"half a character, '\ud83d'"),
        (b"[" * 200_000, "no JSON that can be used"),
        (b"1" * 10_000, "no JSON that can be used"),
    ],
)
def test_what_is_no_json_is_refused_with_what_and_where(
    start: Callable[..., Listener], taker: Taker, body: bytes, says: str
) -> None:
    status, text = ask(start(), "POST", "/alertmanager", body)
    assert status == 400 and says in text and not taker.given


def test_a_failure_here_is_an_error_that_the_sender_repeats(start: Callable[..., Listener], taker: Taker) -> None:
    listener = start()
    status, text = ask(listener, "POST", "/alertmanager", '"fail"')
    assert status == 500 and "disk full" not in text
    assert ask(listener, "POST", "/alertmanager", "1")[0] == 200


# -- strangers ---------------------------------------------------------------------------------------------------------


def test_with_a_token_only_healthz_is_open(start: Callable[..., Listener], taker: Taker) -> None:
    listener = start(token=lambda: "s3cret")
    for method, path in (("POST", "/alertmanager"), ("POST", "/checkpoint"), ("GET", "/metrics")):
        assert ask(listener, method, path, "{}")[0] == 401
        for wrong in (
            "Bearer",
            "Bearer ",
            "Bearer s3cre",
            "Bearer s3cret2",
            "Basic s3cret",
            "s3cret",
            "Bearer s\xe9cret",
        ):
            assert ask(listener, method, path, "{}", Authorization=wrong)[0] == 401, wrong
        for right in ("Bearer s3cret", "bearer  s3cret "):
            assert ask(listener, method, path, "{}", Authorization=right)[0] == 200, right
    assert ask(listener, "GET", "/healthz")[0] == 503
    assert taker.given == [{}] * 4
    assert b"WWW-Authenticate: Bearer" in raw(listener, b"GET /metrics HTTP/1.1\r\n\r\n")


def test_a_renewed_token_holds_at_once_and_a_lost_one_lets_nobody_in(
    start: Callable[..., Listener], tmp_path: Path
) -> None:
    from bot.config import secret

    file = tmp_path / "token"
    file.write_text("one\n")
    listener = start(token=lambda: secret("the listener's token", file))
    assert ask(listener, "GET", "/metrics", Authorization="Bearer one")[0] == 200
    file.write_text("two\n")
    assert ask(listener, "GET", "/metrics", Authorization="Bearer one")[0] == 401
    assert ask(listener, "GET", "/metrics", Authorization="Bearer two")[0] == 200
    file.write_text("")
    for given in ("Bearer two", "Bearer", "Bearer "):
        assert ask(listener, "GET", "/metrics", Authorization=given)[0] == 503


def test_a_token_that_cannot_be_read_stops_the_start(taker: Taker, tmp_path: Path) -> None:
    from bot.config import secret

    with pytest.raises(ConfigError, match=r"absent: cannot be read for the listener's token"):
        Listener(ANY_PORT, taker.handlers(), lambda: secret("the listener's token", tmp_path / "absent"))


def test_a_taken_port_is_told_as_a_fault_of_the_site_file(start: Callable[..., Listener], taker: Taker) -> None:
    port = place(start())[1]
    with pytest.raises(ConfigError, match=f"cannot listen on 127.0.0.1:{port}: Address already in use"):
        Listener(("127.0.0.1", port), taker.handlers())


# -- senders that drip, flood or lie -----------------------------------------------------------------------------------

POST = b"POST /alertmanager HTTP/1.1\r\nContent-Length: %d\r\n\r\n"


def test_a_body_without_a_length_is_refused(start: Callable[..., Listener], taker: Taker) -> None:
    listener = start()
    assert b" 411 " in raw(listener, b"POST /alertmanager HTTP/1.1\r\n\r\n")
    assert b" 411 " in raw(
        listener, b"POST /alertmanager HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n"
    )
    assert b" 411 " in raw(listener, b"POST /alertmanager HTTP/1.1\r\nContent-Length: -1\r\n\r\n")
    assert not taker.given


def test_a_body_that_is_too_large_gets_its_answer_before_the_connection_ends(start: Callable[..., Listener]) -> None:
    body = b" " * (MAX_BYTES + 1)
    status, text = ask(start(), "POST", "/alertmanager", body)
    assert status == 413 and f"{MAX_BYTES + 1} bytes" in text
    assert b" 413 " in raw(start(deadline=1), POST % 10**15, b"x" * 100_000)
    assert b" 413 " in raw(start(deadline=1), POST % 10**4000 + b"{}")


def test_the_largest_body_is_taken(start: Callable[..., Listener], taker: Taker) -> None:
    text = json.dumps("x" * (MAX_BYTES - 2))
    assert ask(start(), "POST", "/alertmanager", text)[0] == 200
    assert len(taker.given[0]) == MAX_BYTES - 2


def test_a_body_cut_short_is_refused(start: Callable[..., Listener], taker: Taker) -> None:
    with socket.create_connection(place(start()), timeout=20) as sock:
        sock.sendall(POST % 10 + b"{}")
        sock.shutdown(socket.SHUT_WR)
        answer = b"".join(iter(lambda: sock.recv(65536), b""))
    assert b"the body ended after 2 of 10 bytes" in answer
    assert not taker.given


def test_a_body_that_drips_is_given_up_at_the_deadline(start: Callable[..., Listener], taker: Taker) -> None:
    answer = raw(start(deadline=0.3), POST % 1000, *[b"x"] * 10, pause=0.05)
    assert b" 408 " in answer and b"within 0.3 s" in answer
    assert not taker.given


def test_a_head_that_drips_is_cut_off(start: Callable[..., Listener]) -> None:
    assert raw(start(deadline=0.3), *[b"G"] * 10, pause=0.05) == b""


def test_those_who_only_hold_the_line_do_not_keep_others_out_for_long(start: Callable[..., Listener]) -> None:
    listener = start(deadline=0.5)
    idle = [socket.create_connection(place(listener)) for _ in range(MAX_CONNECTIONS)]
    try:
        end = time.monotonic() + 10
        while time.monotonic() < end:
            with suppress(OSError, http.client.HTTPException):
                if ask(listener, "GET", "/healthz")[0] == 503:
                    break
        else:
            pytest.fail("never answered again")
    finally:
        for sock in idle:
            sock.close()


def test_noise_leaves_it_well(start: Callable[..., Listener]) -> None:
    listener = start()
    for noise in (
        b"\x16\x03\x01\x02\x00\x01",
        b"\r\n\r\n",
        b"GET\r\n\r\n",
        b"BREW /metrics HTTP/1.1\r\n\r\n",
        b"GET " + b"x" * 70_000,
    ):
        with socket.create_connection(place(listener), timeout=20) as sock:
            sock.sendall(noise)
    assert ask(listener, "GET", "/metrics")[0] == 200


def test_it_stops_though_it_never_began_and_though_somebody_is_connected(
    start: Callable[..., Listener], taker: Taker
) -> None:
    Listener(ANY_PORT, taker.handlers()).stop()
    listener = start()
    with socket.create_connection(place(listener)):
        listener.stop()
    with pytest.raises(OSError):
        socket.create_connection(place(listener), timeout=1).close()


# -- the site file -----------------------------------------------------------------------------------------------------

SITE = 'site: {name: x}\nprometheus: {url: "http://p:9090"}\nscheduler: {}\n'


@pytest.mark.parametrize(
    ("text", "listen"),
    [
        ("http: {}", ("127.0.0.1", 8095)),
        ('http: {listen: "[::1]:80"}', ("::1", 80)),
        ("http: {listen: localhost:1}", ("localhost", 1)),
        ("http: {listen: 0.0.0.0:8095, token_file: /t}", ("0.0.0.0", 8095)),
    ],
)
def test_where_it_listens(tmp_path: Path, text: str, listen: tuple[str, int]) -> None:
    (tmp_path / "x.yaml").write_text(SITE + text)
    http_site = read_site(tmp_path / "x.yaml").config.http
    assert http_site and address(http_site.listen) == listen


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("http: {listen: 0.0.0.0:8095}", ":4: http: 0.0.0.0:8095 can be reached from outside: give a token_file"),
        ('http: {listen: "[::]:8095"}', "can be reached from outside"),
        ("http: {listen: mgmt01:8095}", "can be reached from outside"),
        ('http: {listen: ":8095"}', "':8095' is no address"),
        ("http: {listen: 127.0.0.1}", "is no address"),
        ('http: {listen: "::1:80"}', "is no address"),
        ("http: {listen: 127.0.0.1:0}", "'0' is no port"),
        ("http: {listen: 127.0.0.1:65536}", "'65536' is no port"),
        ("http: {listen: 127.0.0.1:http}", "'http' is no port"),
        ("http: {token: x}", ":4: http.token: unknown key"),
        ("alertmanager: {}", ":4: alertmanager.url: missing"),
        ("alertmanager: {url: am:9093}", "no http(s) URL"),
        ("alertmanager: {url: http://am:9093, every: 60}", "not a duration"),
    ],
)
def test_faults_of_the_site_file_are_told_with_their_line(tmp_path: Path, text: str, says: str) -> None:
    (tmp_path / "x.yaml").write_text(SITE + text)
    with pytest.raises(ConfigError) as caught:
        read_site(tmp_path / "x.yaml")
    assert says in str(caught.value)


def test_only_what_surely_is_loopback_is_taken_for_it() -> None:
    assert all(map(is_loopback, ("127.0.0.1", "127.9.9.9", "::1", "localhost")))
    assert not any(map(is_loopback, ("0.0.0.0", "::", "10.0.0.1", "localhost.example.com", "127.0.0.1.example.com")))


# -- markers -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def inbound(tmp_path: Path) -> Iterator[Inbound]:
    database = Database(tmp_path / "x.db")
    yield Inbound(database)
    database.close()


def arrivals(inbound: Inbound, vitals: Vitals | None = None, now: int = NOW) -> Arrivals:
    known = vitals or Vitals(NOW - 100)
    return Arrivals(inbound, policies.build(), "haein", State, lambda: known, clock=lambda: now + 0.5)


def test_a_marker_becomes_a_row_that_is_found_by_job_and_by_session(inbound: Inbound) -> None:
    taking = arrivals(inbound)
    assert taking.checkpoint({"job": 9041, "step": 100, "started": NOW - 30, "completed": NOW - 5.5}).status == 200
    full = {
        "session": "session-7",
        "step": 5,
        "started": "2027-01-15T17:00:00.123456789+09:00",
        "bytes": 2**40,
        "path": "/ckpt/5",
    }
    assert taking.checkpoint(full).status == 200
    (first,) = inbound.markers(["9041", ""])
    assert (first.job, first.step, first.started, first.completed, first.at) == ("9041", 100, NOW - 30, NOW - 6, NOW)
    (second,) = inbound.markers(["session-7"])
    assert (second.started, second.completed, second.bytes, second.path) == (NOW, None, 2**40, "/ckpt/5")
    assert inbound.markers(["9041", "session-7"], since=NOW + 1) == []
    assert inbound.markers([]) == []


def test_a_marker_that_every_rank_sends_is_one(inbound: Inbound) -> None:
    taking = arrivals(inbound)
    for _ in range(8):
        assert taking.checkpoint({"job": "1", "completed": NOW}).status == 200
    assert taking.checkpoint({"job": "1", "completed": NOW, "step": 3}).text == "kept\n"
    assert taking.checkpoint({"job": "1", "completed": NOW, "step": 3}).text == "known already\n"
    assert [marker.step for marker in inbound.markers(["1"])] == [None, 3]


def test_markers_are_forgotten_once_no_run_can_need_them(inbound: Inbound) -> None:
    arrivals(inbound).checkpoint({"job": "1", "completed": NOW})
    arrivals(inbound, now=NOW + KEEP_MARKERS + 1).checkpoint({"job": "2", "completed": NOW})
    assert inbound.markers(["1"]) == [] and inbound.markers(["2"])


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ([], "the marker: "),
        ({}, "neither job nor session"),
        ({"job": "", "completed": NOW}, "neither job nor session"),
        ({"job": "1"}, "neither started nor completed"),
        ({"job": True, "completed": NOW}, "job: "),
        ({"job": {"id": 1}, "completed": NOW}, "job: "),
        ({"job": "1", "completed": NOW * 1000}, "completed: 1.8e+12 are no Unix seconds; milliseconds?"),
        ({"job": "1", "completed": 0}, "completed: 0 are no Unix seconds"),
        ({"job": "1", "completed": -1}, "completed: -1 are no Unix seconds"),
        ({"job": "1", "completed": True}, "completed: is no time"),
        ({"job": "1", "completed": "yesterday"}, "completed: 'yesterday' is no time"),
        ({"job": "1", "completed": "2027-01-15T08:00:00"}, "names no time zone"),
        ({"job": "1", "completed": NOW + 3600}, "completed: lies 3600 s in the future"),
        ({"job": "1", "started": NOW, "completed": NOW - 1}, "completed lies before started"),
        ({"job": "1", "completed": NOW, "step": -1}, "step: "),
        ({"job": "1", "completed": NOW, "step": 1.5}, "step: "),
        ({"job": "1", "completed": NOW, "step": 2**63}, "step: "),
        ({"job": "1", "complete": NOW, "started": NOW}, "complete: unknown key; there is job, session, step"),
        ({"job": "x" * 201, "completed": NOW}, "job: "),
    ],
)
def test_a_marker_that_cannot_be_meant_is_refused_with_what_and_where(inbound: Inbound, body: Any, says: str) -> None:
    reply = arrivals(inbound).checkpoint(body)
    assert reply.status == 400 and says in reply.text
    assert inbound.markers(["1"]) == []


# -- how the bot is ----------------------------------------------------------------------------------------------------


def seen(*, cluster: bool = True, metrics: bool = True) -> Observation:
    return Observation(NOW, NOW, Cluster("c", NOW, {}, {}) if cluster else None, {} if metrics else None)


def test_it_is_well_while_the_last_good_tick_is_fresh(inbound: Inbound) -> None:
    well = Vitals(NOW - 500).after(seen(), NOW)
    assert arrivals(inbound, well).healthz() == Reply()
    assert arrivals(inbound, well, now=NOW + 60).healthz().status == 200
    late = arrivals(inbound, well, now=NOW + 61).healthz()
    assert (late.status, late.text) == (503, "no good tick for 61 s\n")


def test_a_tick_that_saw_nothing_of_a_source_is_no_good_tick() -> None:
    vitals = Vitals(NOW - 100)
    policy = policies.build()
    assert sick(vitals, NOW, policy) == "no good tick since the start"
    vitals = vitals.after(seen(metrics=False), NOW)
    assert sick(vitals, NOW, policy) == "no good tick for 100 s: cannot see prometheus"
    vitals = vitals.after(seen(), NOW)
    vitals = vitals.after(seen(cluster=False), NOW + 15)
    assert sick(vitals, NOW + 60, policy) == ""
    assert sick(vitals, NOW + 75, policy) == "no good tick for 75 s: cannot see scheduler"
    assert (vitals.ticks, vitals.blind_ticks) == (3, 2)


SAMPLE = re.compile(r'([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{((?:[a-z_]+="(?:[^"\\\n]|\\[\\"n])*",?)*)\})? (-?[0-9.e+-]+)')


def parsed(text: str) -> dict[tuple[str, str], float]:
    """(name, labels) → value, by the rules of the text format 0.0.4: HELP, TYPE and all samples of a metric together,
    nothing twice."""
    assert text.endswith("\n")
    found: dict[tuple[str, str], float] = {}
    kinds: dict[str, str] = {}
    now = ""
    for line in text.splitlines():
        if line.startswith("# HELP "):
            now = line.split(" ")[2]
            assert now not in kinds
        elif line.startswith("# TYPE "):
            _, _, name, kind = line.split(" ")
            assert name == now and kind in ("counter", "gauge") and (kind == "counter") == name.endswith("_total")
            kinds[name] = kind
        else:
            match = SAMPLE.fullmatch(line)
            assert match and match[1] == now in kinds, line
            assert (match[1], match[2] or "") not in found
            found[match[1], match[2] or ""] = float(match[3])
    return found


def test_the_metrics_are_what_prometheus_can_read_and_true() -> None:
    opened = [Incident(n, 1, kind, f"node-{n}", NOW) for n, kind in enumerate(KINDS_OPEN, 1)]
    state = fold(
        [
            *(IncidentOpened(NOW, incident, "p") for incident in opened),
            SourceChanged(NOW, SourceHealth('odd"\\\nname', "gone", NOW)),
            SourceChanged(NOW, SourceHealth("node:node-1", "silent", NOW)),
            Paused(NOW, "alice", "why"),
        ]
    )
    vitals = Vitals(NOW - 50).after(seen(), NOW - 20).after(seen(metrics=False), NOW - 5)
    text = exposition(state, vitals, NOW, policies.build(), 'a "cluster"', {"messages_waiting": 3})
    found = parsed(text)
    assert found["xidbot_incidents_open", 'kind="gpu_fault"'] == 2
    assert found["xidbot_incidents_open", 'kind="storm"'] == 0
    assert found["xidbot_incidents_unacknowledged", ""] == 3
    assert found["xidbot_source_up", r'source="odd\"\\\nname"'] == 0
    assert found["xidbot_nodes_silent", ""] == found["xidbot_paused", ""] == found["xidbot_up", ""] == 1
    assert (found["xidbot_ticks_total", ""], found["xidbot_blind_ticks_total", ""]) == (2, 1)
    assert found["xidbot_last_good_tick_age_seconds", ""] == 20
    assert found["xidbot_messages_waiting", ""] == 3
    assert any(name == "xidbot_info" and r"a \"cluster\"" in labels for name, labels in found)


KINDS_OPEN: tuple[Kind, ...] = ("gpu_fault", "gpu_fault", "blind")


def test_metrics_are_there_before_the_first_tick(inbound: Inbound) -> None:
    reply = arrivals(inbound).metrics()
    found = parsed(reply.text)
    assert reply.kind == EXPOSITION
    assert found["xidbot_up", ""] == 0
    assert ("xidbot_last_good_tick_age_seconds", "") not in found
    assert found["xidbot_alertmanager_alerts_firing", ""] == 0


# -- its end -----------------------------------------------------------------------------------------------------------


def test_an_answer_under_way_comes_to_its_end_before_the_listener_does() -> None:
    """What it writes to may be closed right after."""
    begun, go, stopped = threading.Event(), threading.Event(), threading.Event()

    def take(body: Any) -> Reply:
        begun.set()
        assert go.wait(20)
        assert not stopped.is_set()
        return Reply()

    def stop() -> None:
        listener.stop()
        stopped.set()

    listener = Listener(ANY_PORT, Handlers(take, take, Reply, Reply))
    listener.start()
    with ThreadPoolExecutor(2) as pool:
        answer = pool.submit(ask, listener, "POST", "/checkpoint", "{}")
        assert begun.wait(20)
        stopping = pool.submit(stop)
        assert not stopped.wait(0.3)
        go.set()
        stopping.result(20)
        assert answer.result(20) == (200, "ok\n")


def test_what_arrives_whole_only_after_the_end_is_not_taken(start: Callable[..., Listener], taker: Taker) -> None:
    listener = start()
    with socket.create_connection(place(listener), timeout=20) as slow:
        slow.sendall(POST % 2 + b"{")
        wait_until_read(listener)
        listener.stop()
        slow.sendall(b"}")
        assert b" 503 " in slow.recv(65536)
    assert taker.given == []


def wait_until_read(listener: Listener) -> None:
    """A second request is answered, so the first connection was accepted."""
    assert ask(listener, "GET", "/healthz")[0] == 503
