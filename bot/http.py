"""One small HTTP listener for all that comes in: alerts, markers, and those who ask how the bot is.

It knows no domain: what a route does is handed in. A request has one deadline and one size limit, so that whoever
drips or floods only loses their own connection; every answer ends it.
"""

from __future__ import annotations

import hmac
import io
import json
import logging
import socket
import socketserver
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler
from typing import Any

from bot.errors import ConfigError, XidbotError

log = logging.getLogger(__name__)

MAX_BYTES = 8 * 2**20  # an alert is about 1 kB in the webhook: room for a storm of several alerts on 1,250 nodes
DEADLINE = 10.0  # s for the whole request to arrive; Alertmanager and curl send theirs in one go
LEAVE = 5.0  # s that answers under way are given at the end: each writes a few rows
MAX_CONNECTIONS = 64  # at once: two Alertmanagers, a scraper and a trainer's every node need far fewer
TEXT = "text/plain; charset=utf-8"
EXPOSITION = "text/plain; version=0.0.4; charset=utf-8"  # what Prometheus reads


@dataclass(frozen=True, slots=True)
class Reply:
    """The answer to one request."""

    status: int = 200
    text: str = "ok\n"
    kind: str = TEXT


@dataclass(frozen=True, slots=True)
class Handlers:
    """What the routes do. The two that take something get the JSON; an error in one is answered with 500, so that a
    sender who retries does."""

    alertmanager: Callable[[Any], Reply]
    checkpoint: Callable[[Any], Reply]
    healthz: Callable[[], Reply]
    metrics: Callable[[], Reply]


@dataclass(frozen=True, slots=True)
class Route:
    """method: GET or POST. open: needs no token."""

    method: str
    answer: Callable[[bytes], Reply]
    open: bool = False


def routes(handlers: Handlers) -> Mapping[str, Route]:
    """Every path that there is. /healthz is open because a process manager's probe carries no token; it tells nothing
    but an age and the names of sources."""
    return {
        "/alertmanager": Route("POST", _json(handlers.alertmanager)),
        "/checkpoint": Route("POST", _json(handlers.checkpoint)),
        "/healthz": Route("GET", lambda _: handlers.healthz(), open=True),
        "/metrics": Route("GET", lambda _: handlers.metrics()),
    }


def _json(handle: Callable[[Any], Reply]) -> Callable[[bytes], Reply]:
    def answer(body: bytes) -> Reply:
        try:
            found = json.loads(body.decode("utf-8"), parse_constant=_no_number)
            json.dumps(found, ensure_ascii=False).encode()  # "\ud800" alone is JSON, but no text that can be kept
        except json.JSONDecodeError as error:
            return Reply(400, f"the body is no JSON: line {error.lineno} column {error.colno}: {error.msg}\n")
        except UnicodeDecodeError as error:
            return Reply(400, f"the body is no JSON: byte {error.start} is not UTF-8\n")
        except UnicodeEncodeError as error:
            return Reply(400, f"a text holds half a character, {error.object[error.start]!a}\n")
        except (ValueError, RecursionError) as error:
            return Reply(400, f"the body is no JSON that can be used: {error}\n")
        return handle(found)

    return answer


def _no_number(word: str) -> float:
    raise ValueError(f"{word} is no number in JSON")


# -- the listener ------------------------------------------------------------------------------------------------------


class Listener:
    """Listens from the moment it is made, answers between start and stop. Raises ConfigError when it cannot.

    token: gives the bearer token, asked at each request so that a renewed one needs no restart; None: everyone may.
    deadline: seconds in which a whole request must have arrived.
    """

    def __init__(
        self,
        listen: tuple[str, int],
        handlers: Handlers,
        token: Callable[[], str | None] | None = None,
        deadline: float = DEADLINE,
    ) -> None:
        if token:
            token()
        self._server = _Server(listen, routes(handlers), token, deadline)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.1,), name="http", daemon=True)

    @property
    def url(self) -> str:
        host, port, *_ = self._server.server_address
        name = host.decode() if isinstance(host, bytes) else str(host)
        return f"http://[{name}]:{port}" if ":" in name else f"http://{name}:{port}"

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Nothing that is asked from now on is answered but with 503, so that a sender repeats it; answers under way
        come to their end."""
        if self._thread.is_alive():
            self._server.shutdown()
            self._thread.join()
        self._server.server_close()
        if not self._server.answers.end(LEAVE):
            log.warning("http: an answer took longer than %g s and is left behind", LEAVE)


class _Answers:
    """Those under way. After the end there is none, and none begins."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._under_way, self._over = 0, False

    @contextmanager
    def one(self) -> Iterator[bool]:
        """False: it is too late for one."""
        with self._changed:
            begun = not self._over
            self._under_way += begun
        try:
            yield begun
        finally:
            with self._changed:
                self._under_way -= begun
                self._changed.notify_all()

    def end(self, within: float) -> bool:
        with self._changed:
            self._over = True
            return self._changed.wait_for(lambda: not self._under_way, within)


class _Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True
    block_on_close = False
    request_queue_size = 64

    def __init__(
        self,
        listen: tuple[str, int],
        table: Mapping[str, Route],
        token: Callable[[], str | None] | None,
        deadline: float,
    ) -> None:
        self.table, self.token, self.deadline = table, token, deadline
        self.answers = _Answers()
        self.address_family = socket.AF_INET6 if ":" in listen[0] else socket.AF_INET
        self._free = threading.BoundedSemaphore(MAX_CONNECTIONS)
        try:
            super().__init__(listen, _Request)
        except OSError as error:
            raise ConfigError(f"http: cannot listen on {listen[0]}:{listen[1]}: {error.strerror or error}") from error

    def process_request(self, request: Any, client_address: Any) -> None:
        if not self._free.acquire(blocking=False):
            log.warning("http: %d connections are open; one more from %s is refused", MAX_CONNECTIONS, client_address)
            self.shutdown_request(request)
            return
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        log.info("http: the connection from %s broke", client_address, exc_info=True)


class _InTime(io.RawIOBase):
    """Reads a socket until a deadline, however small the pieces are."""

    def __init__(self, sock: socket.socket, seconds: float) -> None:
        self._sock, self._end = sock, time.monotonic() + seconds

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        left = self._end - time.monotonic()
        if left <= 0:
            raise TimeoutError("the request did not arrive in time")
        self._sock.settimeout(left)
        return self._sock.recv_into(buffer)


class _Request(BaseHTTPRequestHandler):
    server: _Server
    server_version, sys_version = "xidbot", ""
    protocol_version = "HTTP/1.1"

    def setup(self) -> None:
        super().setup()
        self.rfile.close()
        self.rfile = io.BufferedReader(_InTime(self.connection, self.server.deadline))

    def finish(self) -> None:
        """A body that was not read is taken in and thrown away: closing over it would cut off the answer."""
        with suppress(OSError):
            self.connection.shutdown(socket.SHUT_WR)
            left = 2 * MAX_BYTES
            while left > 0 and (piece := self.rfile.read1(2**16)):
                left -= len(piece)
        super().finish()

    def answer(self) -> None:
        self.close_connection = True
        try:
            reply = self._refusal() or self._answered()
        except TimeoutError:
            reply = Reply(408, f"the request did not arrive within {self.server.deadline:g} s\n")
        self._send(reply)

    do_GET = do_HEAD = do_POST = do_PUT = do_PATCH = do_DELETE = do_OPTIONS = answer

    @property
    def _route(self) -> Route | None:
        return self.server.table.get(self.path.partition("?")[0])

    def _refusal(self) -> Reply | None:
        route = self._route
        if route is None:
            return Reply(404, f"no such path; there is {', '.join(self.server.table)}\n")
        if self._method != route.method:
            return Reply(405, f"only {route.method} here, not {self.command}\n")
        return None if route.open else self._stranger()

    @property
    def _method(self) -> str:
        return "GET" if self.command == "HEAD" else self.command

    def _stranger(self) -> Reply | None:
        if self.server.token is None:
            return None
        try:
            wanted = self.server.token()
        except XidbotError as error:
            log.error("http: %s", error)
            wanted = None
        if not wanted:
            return Reply(503, "the listener's own token cannot be read\n")
        scheme, _, given = self.headers.get("Authorization", "").partition(" ")
        same = hmac.compare_digest(given.strip().encode("utf-8", "surrogateescape"), wanted.encode())
        if scheme.lower() == "bearer" and same:
            return None
        # Alertmanager does not repeat what was refused, so that somebody here must hear of it.
        log.warning("http: %s %s from %s shows no right token", self.command, self.path, self.address_string())
        return Reply(401, "a bearer token is needed, and this is none or not the right one\n")

    def _answered(self) -> Reply:
        route = self._route
        assert route is not None
        body = self._body() if route.method == "POST" else b""
        if isinstance(body, Reply):
            return body
        try:
            with self.server.answers.one() as begun:
                return route.answer(body) if begun else Reply(503, "the bot is stopping; ask again\n")
        except Exception:
            log.exception("http: %s %s failed", self.command, self.path)
            return Reply(500, "this failed here; the log tells why\n")

    def _body(self) -> bytes | Reply:
        length = self.headers.get("Content-Length", "")
        if not length.isascii() or not length.isdigit():
            return Reply(411, "Content-Length is missing\n")
        if len(length) > 18 or int(length) > MAX_BYTES:
            return Reply(413, f"the body has {length[:18]} bytes, more than {MAX_BYTES}\n")
        body = self.rfile.read(int(length))
        if len(body) < int(length):
            return Reply(400, f"the body ended after {len(body)} of {length} bytes\n")
        return body

    def _send(self, reply: Reply) -> None:
        body = reply.text.encode()
        self.connection.settimeout(self.server.deadline)
        self.send_response(reply.status)
        self.send_header("Content-Type", reply.kind)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Connection", "close")
        if reply.status == 401:
            self.send_header("WWW-Authenticate", "Bearer")
        if reply.status == 405 and self._route:
            self.send_header("Allow", self._route.method)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        log.debug("http: %s %s", self.address_string(), format % args)
