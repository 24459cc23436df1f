"""The local workspace in a real browser, and beside a third party's Slack: what one does, the other does too.

The screenshots lie in the temporary folder: `tests/run --basetemp=/some/folder tests/real/test_workspace.py` keeps it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from slack_sdk import WebClient
from slack_sdk.errors import SlackApiError

from bot.deliver import Deliverer, deliver
from bot.model import Request
from bot.sandbox.workspace import ADMIN, CHANNEL, ON_CALL, PEOPLE, Server, Workspace, serve
from bot.sandbox.workspace import BOT as OUR_BOT
from bot.sandbox.workspace import OPERATOR as BOB
from bot.sandbox.workspace import VIEWER as CAROL
from bot.sender import Sender
from bot.slack import SlackChat, Tokens, build_app, web_client
from store.slots import Slots
from templates.blocks import Button, Card, card_blocks
from tests.golden.test_messages import gpu_fault
from tests.real import browser, slack
from tests.real.browser import Browser
from tests.real.slack import LocalSlack
from tests.real.supervise import eventually
from tests.scenarios.world import World

pytestmark = pytest.mark.real


# -- in a browser ------------------------------------------------------------------------------------------------------


class Bot:
    """All of the bot above the ports on a simulated world; its loops turn when something is asked."""

    def __init__(self, root: Path) -> None:
        self.world = World(root / "world")
        for person in PEOPLE:
            self.world.people.roles[person.id] = person.role
        self.server = serve(Workspace(clock=self._now))
        tokens = Tokens(self.server.bot_token, self.server.app_token)
        slots = Slots(self.world.store.database)
        sender = Sender(slots, SlackChat(web_client(tokens.bot, self.server.api_url)), time.time)
        self._deliverer = Deliverer(
            store=self.world.store, slots=slots, policy=self.world.policy, tz="Asia/Seoul", channel=CHANNEL,
            on_call={"on call": ON_CALL, "secondary": ADMIN}, send=sender.send_due,
        )  # fmt: skip
        self._requests: list[Request] = []
        self._app = build_app(tokens, self._requests.append, base_url=self.server.api_url)
        self._app.start()
        eventually(lambda: self.server.connected, every=0.02, why="the bot's socket")

    def _now(self) -> float:
        return self.world.now + time.monotonic() % 1

    def settle(self) -> None:
        """Everything that is due is sent; the sender writes once a second."""
        deliver(self._deliverer, self.world.now)
        eventually(self._sent, every=0.2, within=30, why="all slots sent")

    def _sent(self) -> bool:
        self._deliverer.send()  # type: ignore[misc]
        return not self._deliverer.slots.waiting()

    def hear(self) -> None:
        """What was asked is answered, and a minute goes by."""
        request = eventually(lambda: self._requests.pop(0), every=0.02, why="a request")
        self.world.store.ask(request)
        self.world.run(minutes=1)
        self.settle()

    def away(self) -> None:
        self._app.stop()
        self.server.stop()


@pytest.fixture
def bot(tmp_path: Path) -> Iterator[Bot]:
    bot = Bot(tmp_path)
    yield bot
    bot.away()
    bot.world.store.close()


@pytest.fixture
def window(tmp_path: Path) -> Iterator[Callable[..., Browser]]:
    if browser.missing() and os.environ.get("XIDBOT_REAL") != "required":
        pytest.skip(browser.missing())
    made: list[Browser] = []

    def make(**how: Any) -> Browser:
        made.append(Browser(tmp_path / f"browser-{len(made)}", **how))
        return made[-1]

    yield make
    for one in made:
        one.stop()


def test_a_person_reads_clicks_and_types(bot: Bot, window: Callable[..., Browser], tmp_path: Path) -> None:
    gpu_fault(bot.world)
    bot.settle()
    page = window()
    page.open(f"{bot.server.url}?as={BOB}")
    assert "node-01: Xid 79 on GPU 3" in page.text("#messages .bot .body")
    assert page.count(".unknown") == 0
    page.shot(tmp_path / "1-incident.png")

    page.click("[data-action=approve]")
    assert "drain node-01, then requeue job 123" in page.text("#sure p")
    page.shot(tmp_path / "2-confirm.png")
    page.click("#sure [value=no]")
    page.click("[data-action=approve]")
    page.keys("#sure [value=yes]", "Enter")
    bot.hear()
    assert "runs again" in eventually(lambda: page.text("#messages .bot .body"), why="the message is edited")
    assert page.count("[data-action=approve]") == 0, "what is decided cannot be clicked again"
    assert "Approved plan" in page.text("#messages .whisper .body"), "answered where it was clicked"
    page.click("[data-open]")
    assert "drain node-01: done" in page.text("#replies")
    page.shot(tmp_path / "3-thread.png")

    page.keys("#close", "Escape")
    eventually(lambda: page.count("#thread[hidden]") == 1, why="the thread closes")
    page.keys("#box", "/")
    page.shot(tmp_path / "4-hints.png")
    page.keys("#box", "exc")
    page.keys("#box", "Tab")
    page.keys("#box", "node-07 for 24h fan noise")
    page.keys("#box", "Enter")
    bot.hear()
    assert "node-07 will be kept from new work" in page.text("#messages")
    assert bot.world.scheduler.nodes["node-07"].ours is not None
    page.shot(tmp_path / "5-exclude.png")
    dismiss = "document.querySelectorAll('.whisper [data-dismiss]').forEach(button => button.click())"
    eventually(lambda: page.script(dismiss) or page.count("#messages .whisper") == 0, why="the whispers are gone")
    page.click("[data-open]")
    assert "Plan 1.1.1 done." in page.text("#replies")
    assert page.complaints() == []


def test_others_see_it_at_once_and_after_a_pause(bot: Bot, window: Callable[..., Browser], tmp_path: Path) -> None:
    page = window(dark=True)
    page.open(f"{bot.server.url}?as={CAROL}")
    assert "Nothing yet" in page.text("#messages")
    gpu_fault(bot.world)
    bot.settle()
    assert "Xid 79" in page.text("#messages article .body")
    page.click("[data-action=ack]")
    bot.hear()
    assert "needs the role operator" in page.text("#messages .whisper .body")
    page.shot(tmp_path / "6-dark.png")
    page.click('.people a[href="?as=U01ALICE"]')
    assert page.text('.people [aria-current="true"]').startswith("Alice")
    assert "needs the role" not in page.text("body")
    bot.away()
    eventually(lambda: page.count("#lost:not([hidden])") == 1, why="the page says that it waits")


def test_a_narrow_window(bot: Bot, window: Callable[..., Browser], tmp_path: Path) -> None:
    gpu_fault(bot.world)
    bot.settle()
    page = window(width=520, height=900)
    page.open(bot.server.url)
    page.find("[data-action=approve]")
    assert page.script("return document.documentElement.scrollWidth <= innerWidth")
    page.shot(tmp_path / "7-narrow.png")


# -- beside a third party's Slack --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Side:
    """One of the two, as the script sees it."""

    client: WebClient
    tokens: Tokens
    api: str
    channel: str
    person: str
    bot: str
    type: Callable[[str, str], object]
    click: Callable[[str, str], object]
    whispered: Callable[[], list[str]]


def our_side(server: Server) -> Side:
    tokens = Tokens(server.bot_token, server.app_token)
    return Side(
        client=WebClient(tokens.bot, base_url=server.api_url, retry_handlers=[]),
        tokens=tokens,
        api=server.api_url,
        channel=CHANNEL,
        person=BOB,
        bot=OUR_BOT,
        type=lambda command, text: server.type(BOB, f"{command} {text}"),
        click=lambda ts, action: server.click(BOB, ts, action),
        whispered=lambda: [message.text for message in server.workspace.whispers(BOB)],
    )


def their_side(emulator: LocalSlack) -> Side:
    tokens = Tokens(slack.BOT_TOKEN, slack.APP_TOKEN)

    def whispered() -> list[str]:
        return [m["text"] for m in emulator.messages() if m.get("ephemeral_to") == slack.OPERATOR]

    return Side(
        client=WebClient(tokens.bot, base_url=emulator.api, retry_handlers=[]),
        tokens=tokens,
        api=emulator.api,
        channel=slack.CHANNEL,
        person=slack.OPERATOR,
        bot=slack.BOT,
        type=lambda command, text: emulator.command(slack.OPERATOR, command, text),
        click=lambda ts, action: emulator.click(slack.OPERATOR, slack.CHANNEL, ts, action),
        whispered=whispered,
    )


CARD = card_blocks(
    Card("412.1.main", ("*Broken*",), (Button("approve", "Approve", "412.1.1", "primary", "Sure?"),), "foot")
)
PNG = b"\x89PNG\r\n\x1a\n" + b"\0" * 30

# Where the two differ, what ours says, and why ours is right.
DIFFERENT = {
    "no text": "no_text",  # the emulator takes an empty message
    "bad blocks": "invalid_blocks",  # … and blocks that Slack refuses
    "wrong token": "invalid_auth",  # … and any token
    "api.test": "ok",  # it has no api.test
}


def script(side: Side) -> dict[str, object]:
    """One after the other; what comes of each step, with ids and times taken out."""
    seen: dict[str, object] = {}
    posted = side.client.chat_postMessage(channel=side.channel, text="Broken", blocks=CARD)
    ts = str(posted["ts"])
    seen["posted"] = (posted["channel"] == side.channel, told(side, posted["message"]))
    side.client.chat_postMessage(channel=side.channel, text="a line", thread_ts=ts)
    side.client.chat_postMessage(channel=side.channel, text="<&amp;> *b*")
    seen["history"] = [told(side, m) for m in side.client.conversations_history(channel=side.channel)["messages"]]
    seen["replies"] = [
        told(side, m) for m in side.client.conversations_replies(channel=side.channel, ts=ts)["messages"]
    ]
    seen["pages"] = pages(side)
    seen |= refusals(side, ts)
    seen |= edits(side, ts)
    seen |= uploads(side, ts)
    seen |= looks(side)
    seen |= people(side)
    return seen


def told(side: Side, message: dict[str, Any]) -> dict[str, object]:
    """What a bot could rely on."""
    return {
        "text": message["text"],
        "ours": message.get("user") == side.bot,
        "blocks": [(block["type"], ours_only(str(block.get("block_id")))) for block in message.get("blocks") or []],
        "in a thread": bool(message.get("thread_ts")) and message["thread_ts"] != message["ts"],
        "replies": message.get("reply_count", 0),
    }


def ours_only(block_id: str) -> str:
    """An id that was given, not one that the server made up."""
    return block_id if block_id.startswith("412.") else ""


def pages(side: Side) -> list[str]:
    found: list[str] = []
    cursor = ""
    while True:
        page = side.client.conversations_history(channel=side.channel, limit=1, cursor=cursor or None)
        found += [message["text"] for message in page["messages"]]
        cursor = (page.get("response_metadata") or {}).get("next_cursor") or ""
        if not cursor:
            return found


def outcome(call: Callable[..., Any], **arguments: Any) -> str:
    try:
        call(**arguments)
    except SlackApiError as error:
        return str(error.response["error"])
    return "ok"


def refusals(side: Side, ts: str) -> dict[str, object]:
    client, channel = side.client, side.channel
    stranger = WebClient("xoxb-nobody", base_url=side.api, retry_handlers=[])
    return {
        "unknown channel": outcome(client.chat_postMessage, channel="C404", text="x"),
        "unknown message": outcome(client.chat_update, channel=channel, ts="1.000001", text="x"),
        "unknown method": outcome(client.api_call, api_method="chat.fly"),
        "unknown user": outcome(client.users_info, user="U404"),
        "unknown channel's facts": outcome(client.conversations_info, channel="C404"),
        "no text": outcome(client.api_call, api_method="chat.postMessage", json={"channel": channel}),
        "bad blocks": outcome(client.chat_postMessage, channel=channel, text="bad", blocks=[{"type": "nonsense"}]),
        "wrong token": outcome(stranger.auth_test),
        "api.test": outcome(client.api_test),
    }


def edits(side: Side, ts: str) -> dict[str, object]:
    def stands() -> dict[str, object]:
        history = side.client.conversations_history(channel=side.channel)["messages"]
        return told(side, next(message for message in history if message["ts"] == ts))

    seen: dict[str, object] = {}
    side.client.chat_update(channel=side.channel, ts=ts, text="Edited", blocks=CARD)
    seen["edited"] = stands()
    side.client.chat_update(channel=side.channel, ts=ts, text="Plain", blocks=[])
    seen["without blocks"] = stands()
    side.client.chat_update(channel=side.channel, ts=ts, text="Broken", blocks=CARD)
    return seen


def uploads(side: Side, ts: str) -> dict[str, object]:
    chart = {"content": PNG, "filename": "lost.png", "title": "GPU-hours"}
    side.client.files_upload_v2(file_uploads=[chart], channel=side.channel, thread_ts=ts)
    replies = side.client.conversations_replies(channel=side.channel, ts=ts)["messages"]
    files = [(file["name"], file["title"], file["size"]) for file in replies[-1].get("files") or []]
    return {"upload": files}


def looks(side: Side) -> dict[str, object]:
    channel = side.client.conversations_info(channel=side.channel)["channel"]
    me = side.client.auth_test()
    names = {user["id"]: user["real_name"] for user in side.client.users_list()["members"]}
    return {
        "channel": (channel["name"], channel["is_member"], channel["is_archived"]),
        "me": (me["user_id"] == side.bot, bool(me["bot_id"])),
        "names": names[side.person],
    }


def people(side: Side) -> dict[str, object]:
    """Through the bot's own client: what arrives of a command and a click, and where the answers go."""
    requests: list[Request] = []
    app = build_app(side.tokens, requests.append, base_url=side.api, ping_interval=0.5)
    app.start()
    try:
        eventually(lambda: app.connected, every=0.02, why="the socket")
        chat = SlackChat(web_client(side.tokens.bot, side.api))
        main = chat.post(side.channel, "Again", CARD)
        side.type("/xid", "approve <412> & more")
        side.click(main.ts, "approve")
        eventually(lambda: len(requests) == 2, every=0.02, why="both requests")
        typed, clicked = requests
        chat.whisper(side.channel, side.person, "by address", response_url=typed.response_url)
        chat.whisper(side.channel, side.person, "by address of the click", response_url=clicked.response_url)
        chat.whisper(side.channel, side.person, "by call")
        return {
            "typed": heard(side, typed, main.ts),
            "clicked": heard(side, clicked, main.ts),
            "whispers": side.whispered(),
            "found again": chat.find(side.channel, "412.1.main", 0) == main,
        }
    finally:
        app.stop()


def heard(side: Side, request: Request, ts: str) -> dict[str, object]:
    return {
        "text": request.text,
        "by the person": request.user == side.person,
        "in the channel": request.channel == side.channel,
        "thread is the message": request.thread == ts,
        "may be answered": request.response_url.startswith("http"),
        "kind of key": request.dedupe.partition(":")[0],
    }


def test_our_workspace_and_a_third_partys_do_the_same(slack: LocalSlack) -> None:
    with serve(Workspace()) as server:
        ours = script(our_side(server))
    theirs = script(their_side(slack))
    assert {step for step in ours if ours[step] != theirs[step]} == set(DIFFERENT), differences(ours, theirs)
    assert {step: ours[step] for step in DIFFERENT} == DIFFERENT


def differences(ours: dict[str, object], theirs: dict[str, object]) -> str:
    return "\n".join(f"{s}:\n  ours   {ours[s]}\n  theirs {theirs[s]}" for s in ours if ours[s] != theirs[s])
