"""An HTTP session that ends in time, for JSON over HTTP as Prometheus speaks it.

requests alone counts its timeout per read, so that a body that drips lasts for ever, and follows a redirect to a login
page whose HTML then looks like broken JSON. Here a request has one deadline for everything from the name look-up to
the last byte, nothing is retried or followed, and every answer that is not the asked-for data raises a SourceError
that says what came instead. A session may be used by several threads.
"""

from __future__ import annotations

import json
import re
import socket
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import requests
from requests.adapters import HTTPAdapter
from requests.auth import AuthBase
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool

from bot.errors import AuthFailed, BadReply, SourceError, Unreachable

# 1,250 nodes × 61 samples are 2 MB; eleven thousand points of 63 nodes 20 MB. More is not an answer to us.
MAX_BYTES = 64 * 2**20
WORKERS = 8  # requests at once; the observer uses 4
_PLACE = re.compile(r"^_?Https?\(host=.*?, port=\d+\): ")  # how urllib3 begins what it says of a connection


class DeadlineSession(requests.Session):
    """deadline: seconds for one request, everything included. Raises Unreachable, AuthFailed, BadReply.

    token_file: read at each request, so that a renewed token needs no restart. ca_file: who signed the server's
    certificate; client_cert: our own, one file with certificate and key.

    The environment is left alone: requests would replace our token with what ~/.netrc holds for the host, and a proxy
    set for Slack must not get the site's own Prometheus. A site that needs a proxy sets `proxies`.
    """

    def __init__(
        self,
        deadline: float = 10,
        *,
        source: str = "prometheus",
        token_file: Path | None = None,
        ca_file: Path | None = None,
        client_cert: Path | None = None,
        max_bytes: int = MAX_BYTES,
    ) -> None:
        super().__init__()
        self.deadline = deadline
        self.source = source
        self.trust_env = False
        self.auth = _TokenFile(source, token_file) if token_file else None
        self.verify = str(ca_file) if ca_file else True
        self.cert = str(client_cert) if client_cert else None
        self._adapter = _Adapter(source, max_bytes)
        self._workers = ThreadPoolExecutor(WORKERS, thread_name_prefix="http")

    def get_adapter(self, url: str | bytes) -> _Adapter:
        """Ours for every address: a library that mounts its own would take the deadline away."""
        return self._adapter

    def request(self, method: str | bytes, url: str | bytes, *args: Any, **kwargs: Any) -> requests.Response:
        """As requests' own, but a POST carries its parameters in the body: long queries break proxies' URL limits."""
        if str(method).upper() == "POST":
            kwargs["data"] = {**(kwargs.get("data") or {}), **(kwargs.pop("params", None) or {})}
        kwargs |= {"allow_redirects": False, "stream": True, "timeout": self.deadline}
        plain = super().request  # `super` knows its class here only, not in the worker
        response = self._in_time(lambda: plain(method, url, *args, **kwargs))
        for refuse in (_refuse_strangers, _refuse_errors, _refuse_partial):
            refuse(self.source, response)
        return response

    def _in_time(self, call: Callable[[], requests.Response]) -> requests.Response:
        """The answer of `call`, which runs in a thread because nothing else ends a hanging name look-up."""
        line = _Line()
        answer = self._workers.submit(line.carry, call)
        try:
            return answer.result(self.deadline)
        except (TimeoutError, requests.exceptions.Timeout) as error:  # ours, or that of a single read
            answer.cancel()
            line.cut()
            raise Unreachable(self.source, f"no whole answer within {self.deadline:g} s") from error
        except requests.exceptions.SSLError as error:
            raise Unreachable(self.source, _cause(error), "check the CA file and the host's name") from error
        except (OSError, ValueError) as error:  # requests' errors are OSErrors, an unusable URL or header a ValueError
            if isinstance(error, SourceError):
                raise
            raise Unreachable(self.source, _cause(error)) from error

    def close(self) -> None:
        super().close()
        self._adapter.close()
        self._workers.shutdown(wait=False, cancel_futures=True)


def _cause(error: BaseException) -> str:
    """The innermost reason in the system's words; requests and urllib3 wrap it three times."""
    inner = [getattr(error, "reason", None), *reversed(error.args)]
    deeper = next((each for each in inner if isinstance(each, BaseException)), None)
    if deeper is not None:
        return _cause(deeper)
    return _PLACE.sub("", str(error)) or type(error).__name__


class _TokenFile(AuthBase):
    """`Authorization: Bearer …` from a file."""

    def __init__(self, source: str, path: Path) -> None:
        self.source, self.path = source, path

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        request.headers["Authorization"] = f"Bearer {self._token()}"
        return request

    def _token(self) -> str:
        try:
            words = self.path.read_text(encoding="ascii").split()
        except OSError as error:
            raise AuthFailed(self.source, f"token file {self.path}: {error.strerror}") from error
        except UnicodeDecodeError as error:
            raise AuthFailed(self.source, f"token file {self.path} holds no token but other bytes") from error
        if len(words) != 1:
            raise AuthFailed(self.source, f"token file {self.path} holds {len(words)} words, not one token")
        return words[0]


# -- the wire ----------------------------------------------------------------------------------------------------------

_worker = threading.local()  # .line: what the request of this thread runs over


class _Line:
    """The socket of one request, so that another thread can cut it."""

    def __init__(self) -> None:
        self._connection: HTTPConnection | None = None
        self._cut = False

    def carry(self, call: Callable[[], requests.Response]) -> requests.Response:
        _worker.line = self
        return call()

    def uses(self, connection: HTTPConnection) -> None:
        self._connection = connection
        if self._cut:
            self.cut()

    def cut(self) -> None:
        """Wakes whoever reads from the socket. The plain shutdown: TLS's own would first say good-bye."""
        self._cut = True
        sock = self._connection.sock if self._connection else None
        if sock is not None:
            with suppress(OSError):
                socket.socket.shutdown(sock, socket.SHUT_RDWR)


class _Http(HTTPConnection):
    def request(self, *args: Any, **kwargs: Any) -> None:
        _worker.line.uses(self)
        super().request(*args, **kwargs)


class _Https(_Http, HTTPSConnection):
    pass


class _HttpPool(HTTPConnectionPool):
    ConnectionCls = _Http


class _HttpsPool(HTTPSConnectionPool):
    ConnectionCls = _Https


class _Adapter(HTTPAdapter):
    """Reads the whole body, up to a size, while the line is watched."""

    def __init__(self, source: str, max_bytes: int) -> None:
        super().__init__(pool_maxsize=WORKERS, max_retries=0)
        self._source, self._max_bytes = source, max_bytes

    def init_poolmanager(self, *args: Any, **kwargs: Any) -> None:
        super().init_poolmanager(*args, **kwargs)
        self.poolmanager.pool_classes_by_scheme = {"http": _HttpPool, "https": _HttpsPool}

    def send(self, *args: Any, **kwargs: Any) -> requests.Response:
        response = super().send(*args, **kwargs)
        body = bytearray()
        for piece in response.iter_content(2**16):
            body += piece
            if len(body) > self._max_bytes:
                response.close()
                raise BadReply(self._source, f"the answer is larger than {self._max_bytes / 2**20:g} MiB")
        response._content = bytes(body)
        return response


# -- answers that are not data -----------------------------------------------------------------------------------------


def _refuse_strangers(source: str, response: requests.Response) -> None:
    if response.status_code in (401, 403):
        raise AuthFailed(source, f"HTTP {response.status_code}: {_words(response)}", "check the token and its rights")
    if 300 <= response.status_code < 400:
        where = response.headers.get("Location", "nowhere")
        raise AuthFailed(source, f"redirected to {where}", "a login? otherwise write the address it moved to")
    if response.ok and _is_page(response):
        raise AuthFailed(source, f"a web page instead of data: {_words(response)}", "a login in front of it?")


def _refuse_errors(source: str, response: requests.Response) -> None:
    """Prometheus' own words where it gave a reason (bad_data, execution, timeout); a proxy's status otherwise."""
    reason = _document(response) if not response.ok or b'"status":"error"' in response.content[:100] else {}
    if "error" in reason:
        raise BadReply(source, f"{reason.get('errorType', response.status_code)}: {reason['error']}")
    if response.status_code == 429 or response.status_code >= 500:
        raise Unreachable(source, f"HTTP {response.status_code}: {_words(response)}")
    if not response.ok:
        raise BadReply(source, f"HTTP {response.status_code}: {_words(response)}")


def _refuse_partial(source: str, response: requests.Response) -> None:
    """Warnings mean that a store did not answer or a function does not fit. Prometheus 2.48 to 2.54 put remarks there
    as well, which begin with `PromQL info` and take nothing away."""
    if b'"warnings"' not in response.content:
        return
    warnings = [str(text) for text in _document(response).get("warnings") or ()]
    serious = [text for text in warnings if not text.startswith("PromQL info")]
    if serious:
        raise BadReply(source, f"partial data: {'; '.join(serious)}")


def _is_page(response: requests.Response) -> bool:
    start = response.content[:200].lstrip().lower()
    return "text/html" in response.headers.get("Content-Type", "") or start.startswith((b"<!doctype", b"<html"))


def _document(response: requests.Response) -> dict[str, Any]:
    try:
        found = json.loads(response.content)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _words(response: requests.Response) -> str:
    """The first line of the answer, shortened; the status' name when there is none."""
    lines = response.content[:4096].decode(errors="replace").split("\n")
    first = next((line.strip() for line in lines if line.strip()), response.reason or "no words")
    return first[:200]
