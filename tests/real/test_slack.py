"""The sender and the socket against a real Slack emulator, with a proxy that spoils what the emulator cannot."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from bot.errors import AuthFailed, NoAnswer, RateLimited, Rejected, Unreachable
from bot.model import Request
from bot.sender import Sender
from bot.slack import SlackApp, SlackChat, SlackRoles, Tokens, build_app, web_client
from store.database import Database
from store.slots import Slots
from templates import escape
from templates.blocks import Button, Card, card_blocks, fallback
from tests.real.faultproxy import FaultProxy
from tests.real.slack import ADMIN, APP_TOKEN, BOT, BOT_TOKEN, CHANNEL, OPERATOR, VIEWER, LocalSlack, Message
from tests.real.supervise import eventually, free_port

pytestmark = pytest.mark.real

TOKENS = Tokens(BOT_TOKEN, APP_TOKEN)
APPROVE = Button("approve", "Approve", "412.1.1", "primary")
PING = 0.5


@pytest.fixture
def proxy(slack: LocalSlack) -> Iterator[FaultProxy]:
    with FaultProxy(slack.url) as proxy:
        yield proxy


@pytest.fixture
def chat(proxy: FaultProxy) -> SlackChat:
    return SlackChat(web_client(BOT_TOKEN, f"{proxy.url}/api/", timeout=2))


class Deliver:
    """The slots and the sender's loop, as the bot turns it."""

    def __init__(self, root: Path, chat: SlackChat) -> None:
        self.database = Database(root / "x.db")
        self.slots = Slots(self.database)
        self.sender = Sender(self.slots, chat, time.time)

    def want(self, text: str, slot: str = "main", thread_slot: str = "") -> None:
        card = Card(f"412.1.{slot}", (text,), () if thread_slot else (APPROVE,))
        self.slots.want("412.1", slot, channel=CHANNEL, text=fallback(card), blocks=card_blocks(card),
                        now=int(time.time()), thread_slot=thread_slot)  # fmt: skip

    def settle(self, within: float = 20) -> None:
        """Turns the loop until everything is as wanted."""
        end = time.monotonic() + within
        while self.slots.waiting():
            assert time.monotonic() < end, self.slots.problems()
            self.sender.send_due()
            time.sleep(0.05)


@pytest.fixture
def deliver(tmp_path: Path, chat: SlackChat, monkeypatch: pytest.MonkeyPatch) -> Iterator[Deliver]:
    monkeypatch.setattr("bot.sender.LOOK_AFTER", 0.3)
    deliver = Deliver(tmp_path, chat)
    yield deliver
    deliver.database.close()


class Inbox:
    def __init__(self) -> None:
        self.requests: list[Request] = []
        self.consumer = threading.Lock()  # held: whoever works on requests is busy

    def __call__(self, request: Request) -> None:
        self.requests.append(request)

    def next(self, count: int = 1) -> Request:
        eventually(lambda: len(self.requests) >= count, within=3, every=0.01, why="a request")
        return self.requests[count - 1]


@pytest.fixture
def inbox() -> Inbox:
    return Inbox()


@contextlib.contextmanager
def running(inbox: Inbox, base_url: str) -> Iterator[SlackApp]:
    app = build_app(TOKENS, inbox, base_url=base_url, ping_interval=PING)
    app.start()
    try:
        yield app
    finally:
        app.stop()


@pytest.fixture
def app(slack: LocalSlack, proxy: FaultProxy, inbox: Inbox) -> Iterator[SlackApp]:
    with running(inbox, f"{proxy.url}/api/") as app:
        eventually(lambda: app.connected and slack.connected(), every=0.05, why="the socket")
        yield app


def ours(slack: LocalSlack) -> list[Message]:
    return [message for message in slack.messages() if message["user"] == BOT]


def text_of(message: Message) -> str:
    return str(message["blocks"][0]["text"]["text"])


# -- writing -----------------------------------------------------------------------------------------------------------


def test_post_edit_and_thread(slack: LocalSlack, deliver: Deliver) -> None:
    deliver.want("one")
    for number in range(3):
        deliver.want(f"line {number}", f"line-{number}", "main")
    deliver.settle()
    deliver.want("two")
    deliver.settle()
    main, *lines = ours(slack)
    assert text_of(main) == "two"
    assert main["blocks"][0]["block_id"] == "412.1.main"
    assert [text_of(line) for line in lines] == ["line 0", "line 1", "line 2"]
    assert {line["thread_ts"] for line in lines} == {main["ts"]}
    assert deliver.slots.by_message(CHANNEL, main["ts"]) == ("412.1", "main")
    assert [button["value"] for button in slack.buttons(CHANNEL, main["ts"])] == ["412.1.1"]


def test_what_stands_in_a_value_stays_text(slack: LocalSlack, deliver: Deliver) -> None:
    deliver.want(f"log: {escape('<!channel> & @here')}")
    deliver.settle()
    assert text_of(ours(slack)[0]) == "log: &lt;!channel&gt; &amp; @\u2060here"


def test_a_log_of_fifty_thousand_characters(slack: LocalSlack, deliver: Deliver) -> None:
    deliver.want("head " + "log " * 12_500 + " tail")
    deliver.settle()
    (message,) = ours(slack)
    assert len(json.dumps(message["blocks"])) < 13_200
    assert text_of(message).startswith("head ")


@pytest.mark.parametrize("slot", ["main", "line"])
def test_the_reply_is_lost_after_slack_acted(slack: LocalSlack, proxy: FaultProxy, deliver: Deliver, slot: str) -> None:
    if slot == "line":
        deliver.want("one")
        deliver.settle()
    before = len(ours(slack))
    proxy.fault("chat.postMessage", drop=True, after=True)
    deliver.want("unclear", slot, "main" if slot == "line" else "")
    deliver.settle()
    assert [text_of(message) for message in ours(slack)[before:]] == ["unclear"]
    deliver.want("edited", slot, "main" if slot == "line" else "")
    deliver.settle()
    assert [text_of(message) for message in ours(slack)[before:]] == ["edited"]


def test_slack_answers_too_late(slack: LocalSlack, proxy: FaultProxy, deliver: Deliver) -> None:
    proxy.fault("chat.postMessage", delay=3, after=True)
    deliver.want("one")
    deliver.settle()
    assert [text_of(message) for message in ours(slack)] == ["one"]


def test_a_message_found_among_many(slack: LocalSlack, deliver: Deliver, proxy: FaultProxy) -> None:
    proxy.fault("chat.postMessage", drop=True, after=True)
    deliver.want("one")
    deliver.sender.send_due()
    for number in range(250):
        slack.say(VIEWER, f"chatter {number}")
    deliver.settle()
    assert [text_of(message) for message in ours(slack)] == ["one"]


def test_a_bad_gateway_may_have_posted_or_not(slack: LocalSlack, proxy: FaultProxy, deliver: Deliver) -> None:
    proxy.fault("chat.postMessage", status=502, body="<html>bad gateway</html>", after=True)
    proxy.fault("chat.postMessage", status=503)
    deliver.want("posted")
    deliver.want("not posted", "other")
    deliver.settle(30)
    assert sorted(text_of(message) for message in ours(slack)) == ["not posted", "posted"]


def test_retry_after_is_kept(proxy: FaultProxy, slack: LocalSlack, deliver: Deliver) -> None:
    proxy.fault("chat.postMessage", status=429, headers={"Retry-After": "3"}, body='{"ok":false,"error":"ratelimited"}')
    deliver.want("one")
    deliver.settle()
    first, second = (request.at for request in proxy.requests if "postMessage" in request.path)
    assert 3 <= second - first < 4
    assert len(ours(slack)) == 1


def test_writes_to_a_channel_are_a_second_apart(proxy: FaultProxy, deliver: Deliver) -> None:
    for number in range(4):
        deliver.want(f"{number}", f"m{number}")
    deliver.settle()
    times = [request.at for request in proxy.requests if "postMessage" in request.path]
    assert all(later - earlier > 1 for earlier, later in zip(times, times[1:], strict=False))


def test_a_message_that_somebody_deleted(slack: LocalSlack, chat: SlackChat, deliver: Deliver) -> None:
    deliver.want("one")
    deliver.settle()
    slack.reset()
    deliver.want("two")
    deliver.want("line", "line", "main")
    deliver.settle()
    main, line = ours(slack)
    assert (text_of(main), text_of(line), line["thread_ts"]) == ("two", "line", main["ts"])


def test_refused_blocks_do_not_cost_the_message(slack: LocalSlack, proxy: FaultProxy, deliver: Deliver) -> None:
    for _ in range(2):
        proxy.fault("chat.postMessage", status=200, body='{"ok":false,"error":"invalid_blocks"}')
    deliver.want("*one*")
    deliver.settle()
    (message,) = ours(slack)
    assert (message["text"], message.get("blocks") or []) == ("one\nApprove: type /xid approve 412.1.1", [])


def test_an_edit_to_text_takes_the_buttons_away(slack: LocalSlack, chat: SlackChat) -> None:
    at = chat.post(CHANNEL, "x", card_blocks(Card("a", ("x",), (APPROVE,))))
    chat.update(at, "only text", [])
    message = slack.message(CHANNEL, at.ts)
    assert (message["text"], message.get("blocks") or []) == ("only text", [])


@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        ({"status": 429, "headers": {"Retry-After": "7"}, "body": "{}"}, RateLimited),
        ({"status": 500}, NoAnswer),
        ({"drop": True}, NoAnswer),
        ({"delay": 3}, NoAnswer),
        ({"status": 200, "body": '{"ok":false,"error":"not_in_channel"}'}, Rejected),
        ({"status": 200, "body": '{"ok":false,"error":"token_revoked"}'}, AuthFailed),
    ],
    ids=str,
)
def test_each_fault_in_our_words(
    proxy: FaultProxy, chat: SlackChat, fault: dict[str, object], kind: type[Exception]
) -> None:
    proxy.fault("chat.postMessage", **fault)  # type: ignore[arg-type]
    with pytest.raises(kind) as caught:
        chat.post(CHANNEL, "x", [])
    assert type(caught.value) is kind
    assert len(proxy.requests) == 1, "nothing below us repeats a call"


@pytest.mark.parametrize("body", ["<html>log in</html>", "", "[1]", "null", '{"ok":true}', "\xff"])
def test_an_answer_that_is_not_slacks_counts_as_unclear(
    slack: LocalSlack, proxy: FaultProxy, deliver: Deliver, body: str
) -> None:
    proxy.fault("chat.postMessage", status=200, body=body.encode("latin-1"), after=True)
    deliver.want("one")
    deliver.settle()
    assert len(ours(slack)) == 1


def test_nobody_listens() -> None:
    chat = SlackChat(web_client(BOT_TOKEN, f"http://127.0.0.1:{free_port()}/api/"))
    with pytest.raises(Unreachable) as caught:
        chat.post(CHANNEL, "x", [])
    assert not caught.value.maybe_done


def test_an_unknown_channel_has_a_remedy(chat: SlackChat) -> None:
    with pytest.raises(Rejected, match=r"channel_not_found \(slack.channel takes the channel's id"):
        chat.post("gpu-incidents-2", "x", [])


def test_whispers(slack: LocalSlack, chat: SlackChat, app: SlackApp, inbox: Inbox) -> None:
    slack.command(VIEWER, "/xid", "incidents")
    request = inbox.next()
    chat.whisper(CHANNEL, VIEWER, "by answer address", response_url=request.response_url)
    chat.whisper(CHANNEL, VIEWER, "by call")
    chat.whisper(CHANNEL, VIEWER, "address used up", response_url=f"{slack.url}/nowhere")
    told = [message for message in slack.messages() if message.get("ephemeral_to") == VIEWER]
    assert [message["text"] for message in told] == ["by answer address", "by call", "address used up"]


def test_find_tells_threads_apart(chat: SlackChat) -> None:
    parent = chat.post(CHANNEL, "x", card_blocks(Card("1.1.main", ("x",))))
    line = chat.post(CHANNEL, "y", card_blocks(Card("1.1.line", ("y",))), parent.ts)
    now = int(time.time())
    assert chat.find(CHANNEL, "1.1.main", now) == parent
    assert chat.find(CHANNEL, "1.1.line", now, parent.ts) == line
    assert chat.find(CHANNEL, "1.1", now) is None


# -- doctor and roles --------------------------------------------------------------------------------------------------


def test_check(chat: SlackChat, proxy: FaultProxy) -> None:
    assert [state.problem for state in chat.check(CHANNEL)] == ["", "", ""]
    assert "channel_not_found" in chat.check("C404")[2].problem
    proxy.fault("auth.test", headers={"x-oauth-scopes": "chat:write,commands"}, times=2)
    assert "channels:history" in chat.check(CHANNEL)[1].problem
    proxy.fault("auth.test", status=200, body='{"ok":false,"error":"invalid_auth"}')
    (token,) = chat.check(CHANNEL)
    assert "SLACK_BOT_TOKEN" in token.problem
    proxy.fault("conversations.info", status=200, body='{"ok":true,"channel":{"is_member":false}}')
    assert "/invite" in chat.check(CHANNEL)[2].problem


def test_user_groups(proxy: FaultProxy) -> None:
    """The emulator has none: the proxy answers once, then everybody of the group is nobody."""
    proxy.fault("usergroups.users.list", status=200, body=json.dumps({"ok": True, "users": [OPERATOR]}))
    now = [0.0]
    roles = SlackRoles(
        web_client(BOT_TOKEN, f"{proxy.url}/api/"),
        {"admin": [ADMIN], "operator": ["S0ONCALL"]},
        {"alice": ADMIN},
        lambda: now[0],
    )
    assert [roles.of(user) for user in (ADMIN, OPERATOR, VIEWER, "os:alice")] == ["admin", "operator", None, "admin"]
    now[0] = 61
    assert roles.of(OPERATOR) is None


# -- listening ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("command", "typed", "read"),
    [
        ("/retry", "session-123", "retry session-123"),
        ("/exclude", "node-17 for 24h fan &lt;noise&gt;", "exclude node-17 for 24h fan <noise>"),
        ("/xid", "<!channel> node-1;rm -rf / @all node-[01-63]", "<!channel> node-1;rm -rf / @all node-[01-63]"),
    ],
)
def test_a_command_arrives(slack: LocalSlack, app: SlackApp, inbox: Inbox, command: str, typed: str, read: str) -> None:
    assert slack.command(OPERATOR, command, typed) < 3
    request = inbox.next()
    assert (request.text, request.user, request.channel, request.source) == (read, OPERATOR, CHANNEL, "slack")
    assert request.response_url.startswith("http")
    assert request.dedupe.startswith("command:")


def test_acknowledged_while_everything_else_hangs(slack: LocalSlack, app: SlackApp, inbox: Inbox) -> None:
    with inbox.consumer:
        for number in range(10):
            assert slack.command(OPERATOR, "/retry", f"session-{number}") < 3
            assert inbox.next(number + 1).text == f"retry session-{number}"


def test_acknowledged_while_slacks_web_api_hangs(
    slack: LocalSlack, proxy: FaultProxy, app: SlackApp, inbox: Inbox
) -> None:
    proxy.fault("/api/", delay=5, times=None)
    assert slack.command(OPERATOR, "/retry", "session-1") < 1
    assert inbox.next().text == "retry session-1"


def test_a_click_arrives_as_the_person_who_clicked(
    slack: LocalSlack, deliver: Deliver, app: SlackApp, inbox: Inbox
) -> None:
    deliver.want("one")
    deliver.settle()
    ts = deliver.slots.ts("412.1", "main")
    assert slack.click(VIEWER, CHANNEL, ts, "approve") < 3
    assert slack.click(OPERATOR, CHANNEL, ts, "approve") < 3
    first, second = inbox.next(1), inbox.next(2)
    assert (first.text, first.user, second.user) == ("approve 412.1.1", VIEWER, OPERATOR)
    assert (first.channel, first.thread) == (CHANNEL, "")  # answered where it was clicked
    assert first.dedupe != second.dedupe


def test_five_thousand_characters_are_refused_at_once(slack: LocalSlack, app: SlackApp, inbox: Inbox) -> None:
    assert slack.command(OPERATOR, "/xid", "x" * 5_000) < 3
    told = eventually(lambda: [m for m in slack.messages() if m.get("ephemeral_to") == OPERATOR], why="the refusal")
    assert "5,000 characters" in told[0]["text"]
    assert inbox.requests == []


# -- the socket --------------------------------------------------------------------------------------------------------


def arrives(slack: LocalSlack, inbox: Inbox, within: float = 20) -> float:
    """Types until a command gets through; the seconds that took. What nobody hears Slack does not keep."""
    begin, before = time.monotonic(), len(inbox.requests)
    eventually(lambda: slack.connected(), within=within, why="a socket")
    eventually(lambda: slack.command(OPERATOR, "/xid", "help") < 3 and len(inbox.requests) > before, within=within)
    return time.monotonic() - begin


def test_killed_and_restarted(slack: LocalSlack, deliver: Deliver, app: SlackApp, inbox: Inbox) -> None:
    deliver.want("one")
    deliver.settle()
    slack.stop()
    deliver.want("two")
    deliver.want("line", "line", "main")
    for _ in range(30):
        deliver.sender.send_due()
        time.sleep(0.1)
    eventually(lambda: not app.connected, why="the bot notices")
    slack.restart()
    took = arrives(slack, inbox)
    deliver.settle(30)
    main, line = ours(slack)
    assert (text_of(main), text_of(line), line["thread_ts"]) == ("two", "line", main["ts"])
    assert app.connected
    assert app.problem == ""
    assert took < 10


def test_sockets_reset_by_the_kernel(slack: LocalSlack, app: SlackApp, inbox: Inbox) -> None:
    slack.drop_sockets()
    assert arrives(slack, inbox) < 10


def test_slack_asks_for_a_new_socket(slack: LocalSlack, proxy: FaultProxy, app: SlackApp, inbox: Inbox) -> None:
    """It does so every few hours; the emulator never does."""
    assert app._socket is not None
    app._socket.client.enqueue_message('{"type":"disconnect","reason":"refresh_requested"}')
    eventually(lambda: sum("apps.connections.open" in r.path for r in proxy.requests) == 2, why="a second ticket")
    assert arrives(slack, inbox) < 5
    assert len(inbox.requests) == 1


def test_one_start_opens_one_socket(proxy: FaultProxy, app: SlackApp) -> None:
    time.sleep(3 * PING)
    assert sum("apps.connections.open" in request.path for request in proxy.requests) == 1


def test_slack_hangs_and_comes_back(slack: LocalSlack, app: SlackApp, inbox: Inbox) -> None:
    slack.pause()
    eventually(lambda: not app.connected, within=5, why="silence is noticed")
    slack.resume()
    assert arrives(slack, inbox) < 15


def test_started_while_slack_is_away(slack: LocalSlack, inbox: Inbox) -> None:
    slack.stop()
    with running(inbox, slack.api) as app:
        assert "Connection refused" in app.problem
        assert not app.connected
        slack.restart()
        arrives(slack, inbox)
        assert app.problem == ""


@pytest.mark.parametrize(
    "fault",
    [{"status": 429, "headers": {"Retry-After": "1"}, "body": '{"ok":false,"error":"ratelimited"}'}, {"status": 500}],
    ids=str,
)
def test_started_while_slack_refuses_for_now(
    slack: LocalSlack, proxy: FaultProxy, inbox: Inbox, fault: dict[str, object]
) -> None:
    proxy.fault("apps.connections.open", **fault)  # type: ignore[arg-type]
    with running(inbox, f"{proxy.url}/api/") as app:
        assert app.problem
        arrives(slack, inbox)


@pytest.mark.parametrize("code", ["invalid_auth", "not_allowed_token_type", "missing_scope"])
def test_wrong_tokens_are_said_at_start(proxy: FaultProxy, inbox: Inbox, code: str) -> None:
    proxy.fault("apps.connections.open", status=200, body=json.dumps({"ok": False, "error": code}))
    app = build_app(TOKENS, inbox, base_url=f"{proxy.url}/api/")
    with pytest.raises(AuthFailed) as caught:
        app.start()
    assert code in str(caught.value)
    assert caught.value.remedy
    assert "test-token" not in str(caught.value)


class Relay:
    """Passes TCP on to the emulator; deaf: connections stay open and nothing passes any more."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._deaf = threading.Event()
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._server.getsockname()[1])
        self._sockets: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def go_deaf(self) -> None:
        self._deaf.set()

    def close(self) -> None:
        for one in [self._server, *self._sockets]:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._server.accept()
                far = socket.create_connection(("127.0.0.1", self._port))
                self._sockets += [near, far]
                for source, target in ((near, far), (far, near)):
                    threading.Thread(target=self._pass_on, args=(source, target), daemon=True).start()

    def _pass_on(self, source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                if not self._deaf.is_set():
                    target.sendall(data)


def send_socket_to(proxy: FaultProxy, slack: LocalSlack, port: int) -> None:
    """The next socket is opened at this port, with a good ticket."""
    request = urllib.request.Request(f"{slack.api}apps.connections.open", b"", {"Authorization": f"Bearer {APP_TOKEN}"})
    with urllib.request.urlopen(request) as answer:
        url = json.load(answer)["url"].replace(f":{slack.port}/", f":{port}/")
    proxy.fault("apps.connections.open", status=200, body=json.dumps({"ok": True, "url": url}))


def test_an_open_socket_that_is_deaf_is_replaced(slack: LocalSlack, proxy: FaultProxy, inbox: Inbox) -> None:
    relay = Relay(slack.port)
    send_socket_to(proxy, slack, relay.port)
    try:
        with running(inbox, f"{proxy.url}/api/") as app:
            eventually(lambda: app.connected and slack.connected(), why="the socket through the relay")
            slack.command(OPERATOR, "/xid", "one")
            inbox.next(1)
            opened = len([r for r in proxy.requests if "apps.connections.open" in r.path])
            relay.go_deaf()
            eventually(lambda: not app.connected, within=5, why="it is noticed")
            eventually(lambda: app.connected, within=20, why="a new session")
            assert len([r for r in proxy.requests if "apps.connections.open" in r.path]) > opened
            begin = time.monotonic()
            slack.command(OPERATOR, "/xid", "two")
            inbox.next(2)
            assert time.monotonic() - begin < 6
    finally:
        relay.close()


def test_a_server_that_accepts_and_says_nothing(
    slack: LocalSlack, proxy: FaultProxy, inbox: Inbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a timeout the handshake would wait for ever, on the only thread that opens sockets."""
    monkeypatch.setattr("bot.slack.app.TIMEOUT", 2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        send_socket_to(proxy, slack, silent.getsockname()[1])
        with running(inbox, f"{proxy.url}/api/") as app:
            assert not app.connected
            eventually(lambda: app.connected, within=15, why="a better socket")
            arrives(slack, inbox)
