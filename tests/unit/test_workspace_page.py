"""The page without a browser: what it shows to whom, the stream that keeps it so, and what it refuses."""

from __future__ import annotations

import http.client
import json
import re
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from datetime import UTC
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from bot.sandbox.workspace import ADMIN, BOT, OPERATOR, VIEWER, Server, Workspace, page, serve
from commands import COMMANDS
from templates.blocks import Button, Card, card_blocks

CARD = card_blocks(Card("412.1.main", ("*Broken*",), (Button("approve", "Approve", "412.1.1"),)))
DAY = 86_400


class Clock:
    now = 1_800_000_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def server(clock: Clock) -> Iterator[Server]:
    with serve(Workspace(clock, UTC)) as server:
        yield server


def get(server: Server, path: str = "", **headers: str) -> str:
    with urllib.request.urlopen(urllib.request.Request(server.url + path, headers=headers)) as answer:
        text: str = answer.read().decode()
    return text


def send(server: Server, what: str, **said: object) -> tuple[int, dict[str, Any]]:
    request = urllib.request.Request(server.url + what, json.dumps(said).encode())
    try:
        with urllib.request.urlopen(request) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


# -- the key -----------------------------------------------------------------------------------------------------------


def test_the_page_opens_only_with_its_address(server: Server) -> None:
    parts = urlsplit(server.url)
    for path in ("", "guessed/", f"{parts.path.strip('/')[:-1]}/", "events", "type"):
        with pytest.raises(urllib.error.HTTPError, match="404"):
            urllib.request.urlopen(f"{parts.scheme}://{parts.netloc}/{path}")
    assert len(parts.path) > 16


def test_nothing_from_elsewhere_is_loaded(server: Server) -> None:
    with urllib.request.urlopen(server.url) as answer:
        policy, text = answer.headers["Content-Security-Policy"], answer.read().decode()
    assert "default-src 'none'" in policy and "unsafe" not in policy
    assert not re.search(r"""(src|href)=["']?(https?:)?//""", text)
    for name in page.STATIC:
        assert get(server, name) == (Path(page.__file__).parent / name).read_text()
        code = re.sub(r"^\s*//.*|\s//.*$|http://www.w3.org/2000/svg", "", get(server, name), flags=re.MULTILINE)
        assert "//" not in code


# -- what is shown -----------------------------------------------------------------------------------------------------


def test_everybody_sees_what_is_theirs(server: Server) -> None:
    workspace = server.workspace
    main = workspace.post(BOT, "fallback", CARD)
    workspace.post(VIEWER, "is <it> &amp; &lt;b&gt;bad&lt;/b&gt;?")
    workspace.post(BOT, "for Bob", to=OPERATOR)
    workspace.post(BOT, "below", thread=main.ts)
    text = get(server, f"?as={OPERATOR}")
    assert "<strong>Broken</strong>" in text and "fallback" not in text
    assert "is &lt;it&gt; &amp; &lt;b&gt;bad&lt;/b&gt;?" in text
    assert "for Bob" in text and "Only visible to you" in text
    assert "<b>1 reply</b>" in text and "below" not in text
    assert "for Bob" not in get(server, f"?as={VIEWER}")
    assert "below" in get(server, f"?as={VIEWER}&thread={main.ts}")
    assert "below" in get(server, f"thread?as={VIEWER}&ts={main.ts}")


def test_who_is_nobody_is_the_first(server: Server) -> None:
    assert f'data-me="{ADMIN}"' in get(server, "?as=U404")
    assert re.search(r'aria-current="true">Carol', get(server, f"?as={VIEWER}"))


def test_a_thread_that_is_gone(server: Server) -> None:
    assert 'id="thread" class="thread" aria-label="Thread" data-ts="" hidden' in get(server, "?thread=1.000001")
    with pytest.raises(urllib.error.HTTPError, match="404"):
        get(server, "thread?ts=1.000001")


def test_days_and_the_same_author_in_a_thread(server: Server, clock: Clock) -> None:
    main = server.workspace.post(BOT, "main")
    for number in range(3):
        server.workspace.post(BOT, f"line {number}", thread=main.ts)
    clock.now += DAY
    server.workspace.post(BOT, "tomorrow", thread=main.ts)
    text = get(server, f"thread?ts={main.ts}")
    assert re.findall(r'class="day"><span>([^<]+)', text) == ["Friday 15 January", "Saturday 16 January"]
    assert text.count(" follows") == 2


def test_every_command_has_a_hint(server: Server) -> None:
    text = get(server)
    for command in COMMANDS:
        typed = f"/{command.name}" if command.slack != "/xid" else f"/xid {command.name}"
        assert f'data-typed="{typed}"' in text


def test_a_file_that_is_no_picture_is_only_handed_out(server: Server) -> None:
    files = server.workspace.files
    file = files.receive(files.expect("evil.html").secret, b"<script>alert(1)</script>")
    server.workspace.post(BOT, "log", files=[file.id])
    assert f'<a href="files/{file.id}" download="evil.html">' in get(server)
    with urllib.request.urlopen(f"{server.url}files/{file.id}") as answer:
        assert answer.headers["Content-Disposition"] == "attachment"
        assert answer.headers["Content-Type"] == "application/octet-stream"
    with pytest.raises(urllib.error.HTTPError, match="404"):
        get(server, "files/F404")


# -- the stream --------------------------------------------------------------------------------------------------------


class Stream:
    """What a browser's EventSource would see."""

    def __init__(self, server: Server, user: str, **headers: str) -> None:
        parts = urlsplit(server.url)
        self._connection = http.client.HTTPConnection(parts.netloc, timeout=5)
        self._connection.request("GET", f"{parts.path}events?as={user}&after=0", headers=headers)
        self._answer = self._connection.getresponse()
        assert self._answer.headers["Content-Type"].startswith("text/event-stream")

    def next(self, kind: str = "message") -> dict[str, Any]:
        """The next event of a kind; its number is `id`."""
        while True:
            lines = dict(line.split(": ", 1) for line in self._lines())
            if lines.get("event") == kind:
                return {"id": lines.get("id", ""), **json.loads(lines["data"])}

    def _lines(self) -> Iterator[str]:
        while (line := self._answer.readline().decode().rstrip("\n")) != "":
            yield line

    def rest(self) -> bytes:
        return self._answer.read()

    def close(self) -> None:
        self._answer.close()
        self._connection.close()


@pytest.fixture
def stream(server: Server) -> Iterator[Callable[..., Stream]]:
    made: list[Stream] = []

    def make(user: str = OPERATOR, **headers: str) -> Stream:
        made.append(Stream(server, user, **headers))
        return made[-1]

    yield make
    for one in made:
        one.close()


def test_messages_arrive_and_change_in_place(server: Server, stream: Callable[..., Stream]) -> None:
    seen = stream()
    main = server.workspace.post(BOT, "Broken", CARD)
    told = seen.next()
    assert (told["ts"], told["thread"], told["mine"]) == (main.ts, "", False)
    assert "<strong>Broken</strong>" in told["html"] and f'data-ts="{main.ts}"' in told["html"]
    server.workspace.edit(main.ts, "Mended", [])
    assert "Mended" in seen.next()["html"]
    server.workspace.post(BOT, "line", thread=main.ts)
    line, again = seen.next(), seen.next()
    assert (line["thread"], again["ts"]) == (main.ts, main.ts)
    assert "1 reply" in again["html"]
    server.workspace.delete(main.ts)
    assert seen.next() == {"id": "5", "ts": main.ts, "thread": "", "mine": False, "html": ""}


def test_a_whisper_reaches_one(server: Server, stream: Callable[..., Stream]) -> None:
    bob, carol = stream(OPERATOR), stream(VIEWER)
    server.workspace.post(BOT, "for Bob", to=OPERATOR)
    server.workspace.post(BOT, "for all")
    assert bob.next()["mine"]
    assert "for all" in carol.next()["html"]


def test_who_comes_back_misses_nothing_and_sees_nothing_twice(server: Server, stream: Callable[..., Stream]) -> None:
    first = stream()
    main = server.workspace.post(BOT, "one")
    seen = first.next()["id"]
    server.workspace.edit(main.ts, "one, edited", [])
    server.workspace.post(BOT, "two")
    back = stream(OPERATOR, **{"Last-Event-ID": seen})
    assert ["edited" in back.next()["html"], "two" in back.next()["html"]] == [True, True]


def test_the_state_of_things(server: Server, stream: Callable[..., Stream]) -> None:
    seen = stream()
    assert seen.next("status") == {"id": "", "connected": False, "topic": ""}
    server.workspace.topic = "day 3"
    assert seen.next("status")["topic"] == "day 3"


def test_the_end_of_the_server_ends_the_stream(server: Server, stream: Callable[..., Stream]) -> None:
    seen = stream()
    seen.next("status")
    begin = time.monotonic()
    server.stop()
    assert seen.rest() == b""
    assert time.monotonic() - begin < 2


# -- what people do ----------------------------------------------------------------------------------------------------


def test_words_and_whispers(server: Server) -> None:
    assert send(server, "type", **{"as": VIEWER, "line": "hello"}) == (200, {"ok": True})
    whisper = server.workspace.post(BOT, "x", to=OPERATOR)
    assert send(server, "dismiss", **{"as": VIEWER, "ts": whisper.ts})[0] == 400, "not theirs"
    assert send(server, "dismiss", **{"as": OPERATOR, "ts": whisper.ts}) == (200, {"ok": True})
    assert [message.text for message in server.workspace.channel(OPERATOR)] == ["hello"]


def test_a_click_that_nobody_answers_is_told(server: Server) -> None:
    main = server.workspace.post(BOT, "Broken", CARD)
    assert send(server, "click", **{"as": VIEWER, "ts": main.ts, "action": "approve"}) == (200, {"ok": False})
    assert "not connected" in server.workspace.whispers(VIEWER)[0].text


@pytest.mark.parametrize(
    ("what", "said"),
    [
        ("type", {}),
        ("type", {"as": "U404", "line": "x"}),
        ("click", {"as": VIEWER, "ts": "1.000001", "action": "approve"}),
        ("click", {"as": VIEWER}),
        ("dismiss", {"as": VIEWER, "ts": "1.000001"}),
    ],
)
def test_what_makes_no_sense_is_refused(server: Server, what: str, said: dict[str, str]) -> None:
    status, answer = send(server, what, **said)
    assert (status, answer["ok"]) == (400, False)


@pytest.mark.parametrize("body", [b"", b"[]", b"7", b"\xff"])
def test_what_is_no_object_is_refused(server: Server, body: bytes) -> None:
    with pytest.raises(urllib.error.HTTPError, match="400"):
        urllib.request.urlopen(f"{server.url}type", body)
