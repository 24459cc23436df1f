"""A loopback proxy that stands in front of Prometheus or of Slack's Web API and misbehaves on demand.

Slack's WebSocket does not pass through it: apps.connections.open names the emulator itself.
"""

import http.client
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self
from urllib.parse import urlsplit

HOP_BY_HOP = {"connection", "keep-alive", "transfer-encoding", "content-length", "host", "date", "server"}


@dataclass(frozen=True)
class Request:
    method: str
    path: str
    raw: bytes
    headers: Mapping[str, str]
    at: float

    @property
    def body(self) -> str:
        return self.raw.decode(errors="replace")


@dataclass
class Fault:
    """One way to misbehave; see FaultProxy.fault."""

    path: str
    status: int | None
    body: str | bytes
    headers: Mapping[str, str]
    delay: float
    drip: float
    drop: bool
    after: bool
    times: int | None


@dataclass
class Answer:
    status: int
    body: bytes
    headers: list[tuple[str, str]] = field(default_factory=list)


class FaultProxy:
    """Forwards everything to `upstream` until a fault matches."""

    def __init__(self, upstream: str) -> None:
        self.upstream = urlsplit(upstream)
        self.requests: list[Request] = []
        self._faults: list[Fault] = []
        self._lock = threading.Lock()
        self.stopping = threading.Event()
        self._server = _Server(self)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def fault(
        self,
        path_substring: str,
        *,
        status: int | None = None,
        body: str | bytes = "",
        headers: Mapping[str, str] | None = None,
        delay: float = 0,
        drip: float = 0,
        drop: bool = False,
        redirect: str | None = None,
        after: bool = False,
        times: int | None = 1,
    ) -> None:
        """From now on, the next `times` requests (None: all) whose path has `path_substring` meet this fault.

        `status` answers instead of the upstream, `redirect` with a 302. `drop` closes without an answer.
        `delay` waits first, `drip` sends a byte, waits as long, and so on. With `after` the upstream has
        acted before the fault strikes: the caller cannot know. Several faults are taken in order.
        """
        extra = dict(headers or {})
        if redirect is not None:
            status, extra["Location"] = status or 302, redirect
        new = Fault(path_substring, status, body, extra, delay, drip, drop, after, times)
        with self._lock:
            self._faults.append(new)

    def clear(self) -> None:
        """An honest proxy again; the log of requests is emptied too."""
        with self._lock:
            self._faults.clear()
            self.requests.clear()

    def stop(self) -> None:
        self.stopping.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    # -- for the handler -----------------------------------------------------------------------------------------

    def seen(self, request: Request) -> Fault | None:
        """Logs the request; the fault that it meets."""
        with self._lock:
            self.requests.append(request)
            for fault in self._faults:
                if fault.path in request.path:
                    return self._use(fault)
        return None

    def _use(self, fault: Fault) -> Fault:
        if fault.times is not None:
            fault.times -= 1
            if fault.times == 0:
                self._faults.remove(fault)
        return fault

    def forward(self, request: Request) -> Answer:
        headers = {name: value for name, value in request.headers.items() if name.lower() not in HOP_BY_HOP}
        assert self.upstream.hostname
        connection = http.client.HTTPConnection(self.upstream.hostname, self.upstream.port, timeout=60)
        try:
            path = self.upstream.path.rstrip("/") + request.path
            connection.request(request.method, path, request.raw or None, headers)
            reply = connection.getresponse()
            kept = [(name, value) for name, value in reply.getheaders() if name.lower() not in HOP_BY_HOP]
            return Answer(reply.status, reply.read(), kept)
        except OSError as error:
            return Answer(502, f"upstream: {error}".encode())
        finally:
            connection.close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, proxy: FaultProxy) -> None:
        self.proxy = proxy
        super().__init__(("127.0.0.1", 0), _Handler)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Callers give up on a slow proxy; that is what it is for."""


class _Handler(BaseHTTPRequestHandler):
    server: _Server

    def handle_any(self) -> None:
        proxy = self.server.proxy
        raw = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        request = Request(self.command, self.path, raw, dict(self.headers), time.time())
        fault = proxy.seen(request)
        if fault is None:
            self._send(proxy.forward(request))
        else:
            self._misbehave(request, fault)

    def _misbehave(self, request: Request, fault: Fault) -> None:
        proxy = self.server.proxy
        answer = proxy.forward(request) if fault.after else None
        proxy.stopping.wait(fault.delay)
        if fault.drop:
            self.close_connection = True
            return
        if answer is None and fault.status is None:
            answer = proxy.forward(request)
        self._send(_spoil(answer, fault), fault.drip)

    do_GET = do_POST = handle_any

    def _send(self, answer: Answer, drip: float = 0) -> None:
        self.send_response(answer.status)
        for name, value in answer.headers:
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(answer.body)))
        self.end_headers()
        if not drip:
            self.wfile.write(answer.body)
            return
        for byte in answer.body:
            self.wfile.write(bytes([byte]))
            if self.server.proxy.stopping.wait(drip):
                return

    def log_message(self, format: str, *args: Any) -> None:
        """FaultProxy.requests is the log."""


def _spoil(answer: Answer | None, fault: Fault) -> Answer:
    body = fault.body.encode() if isinstance(fault.body, str) else fault.body
    if fault.status is not None:
        return Answer(fault.status, body, list(fault.headers.items()))
    assert answer is not None
    return Answer(answer.status, body or answer.body, [*answer.headers, *fault.headers.items()])
