"""A session against a server that misbehaves in every way that real ones were seen to."""

from __future__ import annotations

import json
import shutil
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
import requests

from bot.errors import AuthFailed, BadReply, SourceError, Unreachable
from bot.http_session import DeadlineSession
from tests.real.faultproxy import FaultProxy

JSON = {"Content-Type": "application/json"}
DATA = '{"status":"success","data":{"result":[]}}'
DEADLINE = 0.4


@pytest.fixture
def server() -> Iterator[FaultProxy]:
    """Answers as each test says; nothing stands behind it."""
    with FaultProxy("http://127.0.0.1:1") as proxy:
        yield proxy


@pytest.fixture
def session() -> Iterator[DeadlineSession]:
    with DeadlineSession(DEADLINE) as session:
        yield session


def answer(server: FaultProxy, status: int = 200, body: str = DATA, **more: object) -> str:
    """One answer, and the address to ask."""
    more.setdefault("headers", JSON)
    server.fault("/", status=status, body=body, times=None, **more)  # type: ignore[arg-type]
    return server.url + "/api/v1/query"


# -- what is asked -----------------------------------------------------------------------------------------------------


def test_a_post_carries_its_parameters_in_the_body(server: FaultProxy, session: DeadlineSession) -> None:
    query = "up == 1 or " + "x" * 100_000
    assert session.request("POST", answer(server), params={"query": query}, data={"step": "15"}).json()["data"]
    (seen,) = server.requests
    assert seen.path == "/api/v1/query"
    assert seen.body.startswith("step=15&query=up+%3D%3D+1") and len(seen.body) > 100_000
    assert seen.headers["Content-Type"] == "application/x-www-form-urlencoded"


def test_a_get_keeps_them_in_the_address(server: FaultProxy, session: DeadlineSession) -> None:
    session.get(answer(server), params={"a": "b"})
    assert server.requests[0].path == "/api/v1/query?a=b"


def test_the_token_is_read_at_each_request(server: FaultProxy, tmp_path: Path) -> None:
    token = tmp_path / "token"
    with DeadlineSession(DEADLINE, token_file=token) as session:
        for word in ("first\n", "second"):
            token.write_text(word)
            session.post(answer(server))
    assert [r.headers["Authorization"] for r in server.requests] == ["Bearer first", "Bearer second"]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "No such file"),
        (b"", "0 words"),
        (b" \n", "0 words"),
        (b"two words", "2 words"),
        (b"\xff\xfe", "no token"),
    ],
)
def test_a_useless_token_file_is_named(server: FaultProxy, tmp_path: Path, content: bytes | None, words: str) -> None:
    token = tmp_path / "prom.token"
    if content is not None:
        token.write_bytes(content)
    with DeadlineSession(DEADLINE, token_file=token) as session, pytest.raises(AuthFailed, match=words) as error:
        session.post(answer(server))
    assert str(token) in str(error.value) and server.requests == []


def test_netrc_and_proxies_of_the_environment_are_left_alone(
    server: FaultProxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """requests would send netrc's password in the place of our token, and the query to Slack's proxy."""
    netrc, token = tmp_path / "netrc", tmp_path / "token"
    netrc.write_text("machine 127.0.0.1 login admin password secret\n")
    token.write_text("ours")
    monkeypatch.setenv("NETRC", str(netrc))
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    with DeadlineSession(DEADLINE, token_file=token) as session:
        session.post(answer(server))
    assert server.requests[0].headers["Authorization"] == "Bearer ours"


# -- time --------------------------------------------------------------------------------------------------------------


def in_time(ask: Callable[[], object]) -> Unreachable:
    """Fails within the deadline, give or take a busy machine."""
    begin = time.monotonic()
    with pytest.raises(Unreachable, match="no whole answer within 0.4 s") as error:
        ask()
    assert time.monotonic() - begin < DEADLINE + 4
    return error.value


def test_a_silent_server(server: FaultProxy, session: DeadlineSession) -> None:
    url = answer(server, delay=30)
    assert in_time(lambda: session.post(url)).exit_code == 3


def test_a_body_that_drips(server: FaultProxy, session: DeadlineSession) -> None:
    url = answer(server, body=" " * 1000, drip=0.05)
    in_time(lambda: session.post(url))
    server.clear()
    assert session.post(answer(server)).ok, "the next one is not hurt"


def test_headers_that_drip(session: DeadlineSession) -> None:
    """And the connection is cut, so that nobody goes on reading."""
    cut = threading.Event()

    def drip(listener: socket.socket) -> None:
        peer, _ = listener.accept()
        with peer, suppress(OSError):
            peer.recv(65536)
            peer.sendall(b"HTTP/1.1 200 OK\r\n")
            while True:
                time.sleep(0.05)
                peer.sendall(b"X-Drop: 1\r\n")
        cut.set()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=drip, args=(listener,), daemon=True).start()
        in_time(lambda: session.get(f"http://127.0.0.1:{listener.getsockname()[1]}/"))
        assert cut.wait(5)


def test_a_connection_that_nobody_accepts(session: DeadlineSession) -> None:
    with socket.create_server(("127.0.0.1", 0), backlog=1) as listener:
        port = listener.getsockname()[1]
        crowd = [socket.socket() for _ in range(8)]
        for each in crowd:
            each.setblocking(False)
            each.connect_ex(("127.0.0.1", port))
        in_time(lambda: session.get(f"http://127.0.0.1:{port}/"))
        for each in crowd:
            each.close()


def test_retry_after_is_not_obeyed(server: FaultProxy, session: DeadlineSession) -> None:
    url = answer(server, 429, "slow down", headers={"Retry-After": "20"})
    with pytest.raises(Unreachable, match="HTTP 429: slow down"):
        session.post(url)
    assert len(server.requests) == 1


def test_nothing_is_tried_twice(server: FaultProxy, session: DeadlineSession) -> None:
    server.fault("/", drop=True, times=None)
    with pytest.raises(Unreachable, match="closed connection"):
        session.post(server.url)
    assert len(server.requests) == 1


def test_nobody_there(session: DeadlineSession) -> None:
    with pytest.raises(Unreachable, match="Connection refused"):
        session.get("http://127.0.0.1:1/")


# -- answers that are no data ------------------------------------------------------------------------------------------

HTML = {"Content-Type": "text/html"}
PROMETHEUS = '{{"status":"error","errorType":"{}","error":"{}"}}'
PARTIAL = '{"status":"success","data":{"result":[]},"warnings":["store 7 did not answer"]}'
REMARK = (
    '{"status":"success","data":{"result":[]},"warnings":["PromQL info: metric might not be a counter"],"infos":["i"]}'
)

ANSWERS: list[tuple[int, str, dict[str, str], type[SourceError], str]] = [
    (401, "who are you", {}, AuthFailed, "HTTP 401: who are you .check the token"),
    (403, "", {}, AuthFailed, "HTTP 403: Forbidden"),
    (200, "\n<!DOCTYPE html><title>Sign in</title>", HTML, AuthFailed, "a web page instead of data: <!DOCTYPE html>"),
    (200, "<html>Sign in</html>", JSON, AuthFailed, "a web page instead of data"),
    (302, "", {"Location": "https://login.example/?next=1"}, AuthFailed, "redirected to https://login.example/"),
    (307, "", {"Location": "/elsewhere"}, AuthFailed, "redirected to /elsewhere"),
    (400, PROMETHEUS.format("bad_data", "1:4: parse error"), JSON, BadReply, "bad_data: 1:4: parse error"),
    (422, PROMETHEUS.format("execution", "many-to-many matching"), JSON, BadReply, "execution: many-to-many"),
    (503, PROMETHEUS.format("timeout", "query timed out"), JSON, BadReply, "timeout: query timed out"),
    (200, PROMETHEUS.format("internal", "oops"), JSON, BadReply, "internal: oops"),
    (404, "404 page not found\nmore", {}, BadReply, "HTTP 404: 404 page not found$"),
    (502, "<html>Bad Gateway</html>", HTML, Unreachable, "HTTP 502: <html>Bad Gateway"),
    (500, "", {}, Unreachable, "HTTP 500: Internal Server Error"),
    (200, PARTIAL, JSON, BadReply, "partial data: store 7 did not answer"),
]


@pytest.mark.parametrize(("status", "body", "headers", "kind", "words"), ANSWERS)
def test_every_other_answer_says_what_came_instead(
    server: FaultProxy,
    session: DeadlineSession,
    status: int,
    body: str,
    headers: dict[str, str],
    kind: type[SourceError],
    words: str,
) -> None:
    url = answer(server, status, body, headers=headers)
    with pytest.raises(kind, match=words):
        session.post(url)
    assert len(server.requests) == 1, "a redirect is not followed"


def test_remarks_take_nothing_away(server: FaultProxy, session: DeadlineSession) -> None:
    assert session.post(answer(server, body=REMARK)).json() == json.loads(REMARK)


def test_an_answer_has_a_largest_size(server: FaultProxy) -> None:
    with DeadlineSession(5, max_bytes=1000) as session, pytest.raises(BadReply, match="larger than"):
        session.post(answer(server, body="x" * 1001))


def test_an_unusable_address_is_not_a_crash(session: DeadlineSession) -> None:
    with pytest.raises(Unreachable, match="scheme"):
        session.get("ftp://127.0.0.1/")


def test_a_missing_ca_file_is_not_a_crash(tmp_path: Path) -> None:
    with DeadlineSession(DEADLINE, ca_file=tmp_path / "ca.pem") as session, pytest.raises(Unreachable, match="ca.pem"):
        session.get("https://127.0.0.1:1/")


def test_no_library_can_take_the_deadline_away(session: DeadlineSession) -> None:
    """prometheus-api-client mounts its own adapter with its own retries."""
    session.mount("http://", requests.adapters.HTTPAdapter(max_retries=3))
    assert session.get_adapter("http://127.0.0.1/").max_retries.total == 0


# -- TLS ---------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Key and certificate of 127.0.0.1 in one file, signed by itself."""
    if not shutil.which("openssl"):
        pytest.skip("no openssl to make a certificate with")
    file = tmp_path_factory.mktemp("tls") / "server.pem"
    argv = "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=test -addext subjectAltName=IP:127.0.0.1"
    subprocess.run([*argv.split(), "-keyout", file, "-out", f"{file}.crt"], check=True, capture_output=True)
    file.write_text(file.read_text() + Path(f"{file}.crt").read_text())
    return file


@pytest.fixture
def tls(certificate: Path) -> Iterator[str]:
    """Answers each connection of its own accord: /drip never ends."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=serve_tls, args=(listener, context), daemon=True).start()
        yield f"https://127.0.0.1:{listener.getsockname()[1]}"
        listener.shutdown(socket.SHUT_RDWR)


def serve_tls(listener: socket.socket, context: ssl.SSLContext) -> None:
    with suppress(OSError):
        while True:
            plain, _ = listener.accept()
            with suppress(OSError), context.wrap_socket(plain, server_side=True) as peer:
                asked = peer.recv(65536)
                peer.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Type: application/json\r\n")
                while asked.startswith(b"GET /drip"):
                    time.sleep(0.05)
                    peer.sendall(b"X-Drop: 1\r\n")
                peer.sendall(b"\r\n{}")


def test_a_server_is_trusted_by_its_ca(tls: str, certificate: Path) -> None:
    with DeadlineSession(5, ca_file=certificate) as session:
        assert session.get(tls).json() == {}
    with (
        DeadlineSession(5) as session,
        pytest.raises(Unreachable, match="certificate verify failed.*check the CA file"),
    ):
        session.get(tls)


def test_the_deadline_holds_under_tls(tls: str, certificate: Path) -> None:
    with DeadlineSession(DEADLINE, ca_file=certificate) as session:
        in_time(lambda: session.get(f"{tls}/drip"))
