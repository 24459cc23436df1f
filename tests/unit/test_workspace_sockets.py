"""Socket Mode over loopback: the bot's own client on one side, people who type and click on the other."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import websocket
from slack_sdk import WebClient
from slack_sdk.webhook import WebhookClient

from bot.model import Request
from bot.sandbox.workspace import BOT, CHANNEL, OPERATOR, VIEWER, Message, Refused, Server, Workspace, serve, sockets
from bot.sandbox.workspace.interactions import ANSWERS, Interactions
from bot.slack import SlackApp, SlackChat, Tokens, build_app, web_client
from templates.blocks import Button, Card, card_blocks

CARD = card_blocks(Card("412.1.main", ("*Broken*",), (Button("approve", "Approve", "412.1.1", "primary", "Sure?"),)))


@pytest.fixture
def server() -> Iterator[Server]:
    with serve(Workspace()) as server:
        yield server


class Inbox:
    def __init__(self) -> None:
        self.requests: list[Request] = []

    def __call__(self, request: Request) -> None:
        self.requests.append(request)

    def next(self, count: int = 1) -> Request:
        until(lambda: len(self.requests) >= count)
        return self.requests[count - 1]


def until(check: Callable[[], object], within: float = 5) -> None:
    end = time.monotonic() + within
    while not check():
        assert time.monotonic() < end, "not in time"
        time.sleep(0.01)


@pytest.fixture
def inbox() -> Inbox:
    return Inbox()


@pytest.fixture
def app(server: Server, inbox: Inbox) -> Iterator[SlackApp]:
    """The bot's own client, connected."""
    app = build_app(
        Tokens(server.bot_token, server.app_token), inbox, base_url=server.api_url, ping_interval=0.5
    )  # fmt: skip
    app.start()
    until(lambda: app.connected and server.connected == 1)
    yield app
    app.stop()


@pytest.fixture
def chat(server: Server) -> SlackChat:
    return SlackChat(web_client(server.bot_token, server.api_url))


def whispers(server: Server, user: str) -> list[str]:
    return [message.text for message in server.workspace.whispers(user)]


# -- with the bot's own client -----------------------------------------------------------------------------------------


def test_a_command_reaches_the_bot(server: Server, app: SlackApp, inbox: Inbox, chat: SlackChat) -> None:
    assert server.type(OPERATOR, "/exclude node-17 for 24h fan <noise> & more")
    request = inbox.next()
    assert (request.text, request.user) == ("exclude node-17 for 24h fan <noise> & more", OPERATOR)
    assert (request.channel, request.source) == (CHANNEL, "slack")
    chat.whisper(CHANNEL, OPERATOR, "by its answer address", response_url=request.response_url)
    chat.whisper(CHANNEL, OPERATOR, "by call")
    assert whispers(server, OPERATOR) == ["by its answer address", "by call"]
    assert whispers(server, VIEWER) == [] == server.workspace.channel(), "what was typed is shown to nobody"


def test_a_click_reaches_the_bot(server: Server, app: SlackApp, inbox: Inbox, chat: SlackChat) -> None:
    main = chat.post(CHANNEL, "Broken", CARD)
    assert server.click(OPERATOR, main.ts, "approve")
    request = inbox.next()
    assert (request.text, request.user, request.thread) == ("approve 412.1.1", OPERATOR, "")
    chat.whisper(CHANNEL, OPERATOR, "Approved.", request.thread, request.response_url)
    assert [message.thread for message in server.workspace.whispers(OPERATOR)] == [""]


def test_two_clicks_are_two_requests(server: Server, app: SlackApp, inbox: Inbox, chat: SlackChat) -> None:
    main = chat.post(CHANNEL, "Broken", CARD)
    server.click(OPERATOR, main.ts, "approve")
    server.click(OPERATOR, main.ts, "approve")
    assert inbox.next(2).dedupe != inbox.next(1).dedupe


def test_a_stale_page_clicks_what_is_gone(server: Server, app: SlackApp, inbox: Inbox, chat: SlackChat) -> None:
    main = chat.post(CHANNEL, "Broken", CARD)
    chat.update(main, "Mended", [])
    with pytest.raises(Refused, match="no_such_button"):
        server.click(OPERATOR, main.ts, "approve")
    assert server.click(OPERATOR, main.ts, "approve", value="412.1.1", block_id="b")
    assert inbox.next().text == "approve 412.1.1"


def test_a_button_in_a_thread_names_its_thread(server: Server, app: SlackApp, inbox: Inbox, chat: SlackChat) -> None:
    main = chat.post(CHANNEL, "Broken", [])
    line = chat.post(CHANNEL, "Again?", CARD, main.ts)
    server.click(OPERATOR, line.ts, "approve")
    assert (inbox.next().thread, inbox.next().facts["message"]) == (main.ts, line.ts)


def test_what_is_too_long_is_answered_with_the_ack(server: Server, app: SlackApp, inbox: Inbox) -> None:
    assert server.type(OPERATOR, "/xid " + "x" * 1500)
    assert "1,500 characters" in whispers(server, OPERATOR)[0]
    assert inbox.requests == []


def test_plain_words_are_a_message(server: Server, app: SlackApp, inbox: Inbox) -> None:
    assert server.type(VIEWER, "is <it> bad?")
    assert server.type(VIEWER, "   ")
    assert [(m.user, m.text) for m in server.workspace.channel()] == [(VIEWER, "is &lt;it&gt; bad?")]


def test_a_command_that_nobody_has(server: Server, app: SlackApp) -> None:
    assert not server.type(VIEWER, "/incident `now`")
    assert whispers(server, VIEWER) == ["`/incident` is not a command. There are `/exclude`, `/retry`, `/xid`."]


def test_a_stranger(server: Server) -> None:
    with pytest.raises(Refused, match="user_not_found"):
        server.type("U404", "/xid")


def test_slack_asks_the_bot_to_connect_anew(server: Server, app: SlackApp, inbox: Inbox) -> None:
    server.disconnect("warning")
    until(lambda: server.connected == 1 and app.connected, within=15)
    assert server.type(OPERATOR, "/xid incidents")
    assert inbox.next().text == "incidents"


# -- nobody acknowledges -----------------------------------------------------------------------------------------------


def test_nobody_is_connected(server: Server, chat: SlackChat) -> None:
    main = chat.post(CHANNEL, "Broken", CARD)
    begin = time.monotonic()
    assert not server.type(OPERATOR, "/retry session-123")
    assert not server.click(OPERATOR, main.ts, "approve")
    assert time.monotonic() - begin < 1
    assert whispers(server, OPERATOR) == [
        "`/retry session-123` did not work: xidbot is not connected.",
        "The click did not work: xidbot is not connected.",
    ]


# -- on the wire -------------------------------------------------------------------------------------------------------


class Wire:
    """A client of ours that does only what it is told."""

    def __init__(self, server: Server) -> None:
        url = WebClient(base_url=server.api_url).apps_connections_open(app_token=server.app_token)["url"]
        self.url = str(url)
        self.socket = websocket.create_connection(self.url, timeout=5)
        self.hello = self.read()

    def read(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.socket.recv())
        return found

    def ack(self, envelope: dict[str, Any], **payload: Any) -> None:
        said = {"envelope_id": envelope["envelope_id"], **({"payload": payload} if payload else {})}
        self.socket.send(json.dumps(said))

    def idle(self) -> bool:
        self.socket.settimeout(0.3)
        try:
            self.socket.recv()
        except websocket.WebSocketTimeoutException:
            return True
        return False


@pytest.fixture
def wires(server: Server) -> Iterator[Callable[[], Wire]]:
    made: list[Wire] = []

    def make() -> Wire:
        made.append(Wire(server))
        return made[-1]

    yield make
    for wire in made:
        wire.socket.shutdown()


class Typing:
    """Somebody who types and waits for what comes of it."""

    def __init__(self, server: Server, line: str = "/xid help") -> None:
        self.took, self.ok = 0.0, False
        self._thread = threading.Thread(target=self._type, args=(server, line))
        self._thread.start()

    def _type(self, server: Server, line: str) -> None:
        begin = time.monotonic()
        self.ok = server.type(OPERATOR, line)
        self.took = time.monotonic() - begin

    def done(self) -> bool:
        self._thread.join(10)
        return self.ok


def test_hello_and_envelope(server: Server, wires: Callable[[], Wire]) -> None:
    wire = wires()
    assert (wire.hello["type"], wire.hello["num_connections"]) == ("hello", 1)
    typing = Typing(server, "/xid approve 412")
    envelope = wire.read()
    wire.ack(envelope, text="read", response_type="in_channel")
    assert typing.done()
    payload = envelope["payload"]
    assert (envelope["type"], envelope["accepts_response_payload"]) == ("slash_commands", True)
    assert (payload["command"], payload["text"], payload["user_id"]) == ("/xid", "approve 412", OPERATOR)
    assert payload["trigger_id"].count(".") == 2
    assert [message.text for message in server.workspace.channel()] == ["read"]


def test_a_click_on_the_wire(server: Server, wires: Callable[[], Wire], chat: SlackChat) -> None:
    main, wire = chat.post(CHANNEL, "Broken", CARD), wires()
    clicking = threading.Thread(target=lambda: server.click(OPERATOR, main.ts, "approve"))
    clicking.start()
    envelope = wire.read()
    wire.ack(envelope)
    clicking.join()
    payload, (action,) = envelope["payload"], envelope["payload"]["actions"]
    assert (envelope["type"], payload["type"]) == ("interactive", "block_actions")
    assert payload["container"]["message_ts"] == payload["message"]["ts"] == main.ts
    assert (action["action_id"], action["value"]) == ("approve", "412.1.1")
    assert action["block_id"] == payload["message"]["blocks"][1]["block_id"]


def test_a_ticket_opens_one_connection(server: Server, wires: Callable[[], Wire]) -> None:
    wire = wires()
    for url in (wire.url, wire.url.replace("ticket=", "ticket=x")):
        with pytest.raises(websocket.WebSocketBadStatusException, match="403"):
            websocket.create_connection(url, timeout=5)


def test_an_envelope_goes_to_exactly_one_connection(server: Server, wires: Callable[[], Wire]) -> None:
    first, second = wires(), wires()
    for wire in (first, second):
        typing = Typing(server)
        wire.ack(wire.read())
        assert typing.done()
    assert first.idle() and second.idle()


def test_slack_asks_to_connect_anew(server: Server, wires: Callable[[], Wire]) -> None:
    old = wires()
    server.disconnect("refresh_requested")
    assert (old.read()["reason"], server.connected) == ("refresh_requested", 0)
    new = wires()
    typing = Typing(server)
    new.ack(new.read())
    assert typing.done() and old.idle()


def test_who_goes_without_an_ack_leaves_the_envelope_to_another(server: Server, wires: Callable[[], Wire]) -> None:
    first, second = wires(), wires()
    typing = Typing(server)
    before = first.read()
    first.socket.close()
    again = second.read()
    second.ack(again)
    assert typing.done() and typing.took < 3
    assert again == before


def test_without_an_ack_in_three_seconds_the_person_is_told(server: Server, wires: Callable[[], Wire]) -> None:
    wire = wires()
    typing = Typing(server)
    late = wire.read()
    assert not typing.done()
    assert 2.9 < typing.took < 4
    wire.ack(late, text="too late")
    typing = Typing(server, "/xid incidents")
    wire.ack(wire.read())
    assert typing.done()
    assert whispers(server, OPERATOR) == ["`/xid help` did not work: xidbot did not answer within 3 s."]


def test_nonsense_from_the_app_is_passed_over(server: Server, wires: Callable[[], Wire]) -> None:
    wire = wires()
    for frame in ("", "no json", "[]", "{}", '{"envelope_id": 7, "payload": []}'):
        wire.socket.send(frame)
    typing = Typing(server)
    wire.ack(wire.read())
    assert typing.done()


def test_ten_connections_at_most(server: Server, wires: Callable[[], Wire]) -> None:
    for _ in range(sockets.CONNECTIONS):
        assert wires().hello["type"] == "hello"
    assert wires().hello == {"type": "disconnect", "reason": "too_many_websockets", "debug_info": {"host": "localhost"}}
    assert server.connected == sockets.CONNECTIONS


# -- answer addresses --------------------------------------------------------------------------------------------------


def address(server: Server, wires: Callable[[], Wire], press: Message | None = None) -> WebhookClient:
    wire = wires()
    act = (lambda: server.click(OPERATOR, press.ts, "approve")) if press else (lambda: server.type(OPERATOR, "/xid"))
    acting = threading.Thread(target=act)
    acting.start()
    envelope = wire.read()
    wire.ack(envelope)
    acting.join()
    return WebhookClient(envelope["payload"]["response_url"], retry_handlers=[])


def test_an_answer_address_takes_five_answers(server: Server, wires: Callable[[], Wire]) -> None:
    hook = address(server, wires)
    answers = [hook.send(text=str(number)) for number in range(ANSWERS + 1)]
    assert [answer.status_code for answer in answers] == [200] * ANSWERS + [404]
    assert "used_url" in answers[-1].body
    assert whispers(server, OPERATOR) == ["0", "1", "2", "3", "4"]


def test_an_answer_may_be_for_all_replace_or_delete(server: Server, wires: Callable[[], Wire]) -> None:
    main = server.workspace.post(BOT, "Broken", CARD)
    hook = address(server, wires, main)
    hook.send(text="seen by all", response_type="in_channel")
    hook.send(text="Mended", replace_original=True)
    assert [message.text for message in server.workspace.channel()] == ["Mended", "seen by all"]
    assert hook.send(text="", replace_original=True).status_code == 404
    hook.send(delete_original=True)
    assert [message.text for message in server.workspace.channel()] == ["seen by all"]


def test_an_answer_address_lasts_half_an_hour(server: Server) -> None:
    now = [0.0]
    workspace = Workspace()
    acts = Interactions(workspace, sockets.Sockets("A1", lambda: None), "http://x", ["/xid"], lambda: now[0])
    secret = acts._address(OPERATOR).rpartition("/")[2]
    now[0] = 1799
    acts.respond(secret, {"text": "in time"})
    now[0] = 1801
    for given in (secret, "guessed"):
        with pytest.raises(Refused, match="expired_url"):
            acts.respond(given, {"text": "late"})
    assert [message.text for message in workspace.whispers(OPERATOR)] == ["in time"]
