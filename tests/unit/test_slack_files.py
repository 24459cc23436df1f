"""Uploads against a Slack of a few lines: three calls, and what is raised when one of them goes wrong."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs

import pytest

from bot.errors import NoAnswer, RateLimited, Rejected, SourceError
from bot.slack.client import web_client
from bot.slack.files import SlackFiles

PICTURES = [("a.png", "A", b"\x89PNG a"), ("b.png", "B", b"\x89PNG b")]


class Workspace:
    """refuse: method → answer given instead."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.bytes: dict[str, bytes] = {}
        self.messages: list[dict[str, Any]] = [{"ts": "1.0", "text": "digest"}]
        self.refuse: dict[str, tuple[int, dict[str, Any], dict[str, str]]] = {}
        self.url = ""

    def answer(self, method: str, body: bytes) -> tuple[int, dict[str, Any], dict[str, str]]:
        self.calls.append(method)
        if method in self.refuse:
            return self.refuse[method]
        return 200, {"ok": True, **self._do(method, body)}, {}

    def _do(self, method: str, body: bytes) -> dict[str, Any]:
        if method.startswith("upload-"):
            self.bytes[method.removeprefix("upload-")] = body
            return {}
        form = {name: values[0] for name, values in parse_qs(body.decode()).items()}
        if method == "files.getUploadURLExternal":
            ident = form["filename"]
            return {"file_id": ident, "upload_url": f"{self.url}upload-{ident}"}
        if method == "files.completeUploadExternal":
            files = [{"id": f["id"], "name": f["id"], "title": f["title"]} for f in json.loads(form["files"])]
            self.messages.append({"ts": "1.1", "thread_ts": form["thread_ts"], "files": files})
            return {"files": files}
        return {"messages": self.messages}


@pytest.fixture
def workspace() -> Iterator[Workspace]:
    made = Workspace()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            status, told, headers = made.answer(self.path.strip("/").partition("?")[0], body)
            self.send_response(status)
            for name, value in {"Content-Type": "application/json", **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(json.dumps(told).encode())

        do_GET = do_POST

        def log_message(self, *_: Any) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    made.url = f"http://127.0.0.1:{server.server_port}/"
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield made
    server.shutdown()
    server.server_close()


@pytest.fixture
def files(workspace: Workspace) -> SlackFiles:
    return SlackFiles(web_client("xoxb-1", workspace.url))


def test_two_files_in_one_reply_of_the_thread(workspace: Workspace, files: SlackFiles) -> None:
    names = [name for name, _, _ in PICTURES]
    assert not files.find("C01", "1.0", names)
    files.upload("C01", "1.0", PICTURES)
    assert workspace.bytes == {name: body for name, _, body in PICTURES}
    (shown,) = [m for m in workspace.messages if m.get("files")]
    assert (shown["thread_ts"], [f["title"] for f in shown["files"]]) == ("1.0", ["A", "B"])
    assert workspace.calls.count("files.completeUploadExternal") == 1
    assert files.find("C01", "1.0", names)
    assert not files.find("C01", "1.0", [*names, "c.png"])


@pytest.mark.parametrize(
    ("method", "answer", "expected"),
    [
        ("files.getUploadURLExternal", (200, {"ok": False, "error": "missing_scope"}, {}), Rejected),
        ("files.completeUploadExternal", (200, {"ok": False, "error": "not_in_channel"}, {}), Rejected),
        ("files.completeUploadExternal", (429, {"ok": False}, {"Retry-After": "7"}), RateLimited),
        ("files.completeUploadExternal", (500, {"ok": False, "error": "fatal_error"}, {}), NoAnswer),
        ("upload-a.png", (503, {}, {}), NoAnswer),
    ],
    ids=lambda v: str(v)[:40],
)
def test_what_goes_wrong_is_said_in_our_words(
    workspace: Workspace, files: SlackFiles, method: str, answer: Any, expected: type[SourceError]
) -> None:
    workspace.refuse[method] = answer
    with pytest.raises(expected):
        files.upload("C01", "1.0", PICTURES)
    assert not any(m.get("files") for m in workspace.messages)


def test_nobody_there(files: SlackFiles, workspace: Workspace) -> None:
    calls: list[Callable[[], object]] = [
        lambda: SlackFiles(web_client("xoxb-1", "http://127.0.0.1:9/")).upload("C01", "1.0", PICTURES),
        lambda: SlackFiles(web_client("xoxb-1", "http://127.0.0.1:9/")).find("C01", "1.0", ["a.png"]),
    ]
    for call in calls:
        with pytest.raises(SourceError):
            call()
