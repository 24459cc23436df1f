"""Bolt's dispatch without a socket: acknowledged at once and always, recorded once, as the right person's words."""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from slack_bolt import BoltRequest, BoltResponse
from slack_sdk import WebClient
from slack_sdk.errors import SlackApiError
from slack_sdk.web import SlackResponse

from bot.errors import AuthFailed, BadReply, ConfigError, NoAnswer, RateLimited, Rejected, UsageError
from bot.model import Request
from bot.ports import Posted
from bot.slack import COMMANDS, SlackApp, SlackChat, SlackRoles, Tokens, build_app
from bot.slack.app import backoff
from bot.slack.chat import SCOPES
from bot.slack.client import slack_errors, web_client
from bot.slack.listeners import NOT_RECORDED, clean, click_request, command_request

TOKENS = Tokens("xoxb-test-token", "xapp-test-token")
NOWHERE = "http://127.0.0.1:9/"


class Inbox:
    """Records like the database does: a dedupe key once."""

    def __init__(self) -> None:
        self.requests: dict[str, Request] = {}
        self.calls = 0
        self.open = threading.Event()
        self.open.set()
        self.error: Exception | None = None
        self.changed = threading.Condition()

    def __call__(self, request: Request) -> None:
        self.open.wait(10)
        with self.changed:
            self.calls += 1
            self.changed.notify_all()
        if self.error:
            raise self.error
        self.requests.setdefault(request.dedupe, request)

    def wait(self, calls: int = 1) -> list[Request]:
        with self.changed:
            assert self.changed.wait_for(lambda: self.calls >= calls, 5)
        return list(self.requests.values())


@pytest.fixture
def inbox() -> Inbox:
    return Inbox()


@pytest.fixture
def app(inbox: Inbox) -> Iterator[SlackApp]:
    app = build_app(TOKENS, inbox, base_url=NOWHERE, clock=lambda: 1000.7)
    yield app
    inbox.open.set()
    app.stop()


def command(name: str = "/xid", text: str = "incidents", **changes: str) -> dict[str, Any]:
    return {
        "command": name, "text": text, "user_id": "U02", "channel_id": "C01", "team_id": "T1",
        "trigger_id": "13.37.abc", "response_url": f"{NOWHERE}answer", **changes,
    }  # fmt: skip


def click(action_id: str = "approve", value: str = "412.1.1", **container: str) -> dict[str, Any]:
    return {
        "type": "block_actions",
        "user": {"id": "U02", "username": "bob"},
        "team": {"id": "T1"},
        "container": {"type": "message", "message_ts": "17.1", "channel_id": "C01", **container},
        "channel": {"id": "C01"},
        "message": {"ts": "17.1"},
        "response_url": f"{NOWHERE}answer",
        "actions": [{"type": "button", "action_id": action_id, "block_id": "b", "value": value, "action_ts": "99.1"}],
    }


def dispatch(app: SlackApp, body: dict[str, Any]) -> BoltResponse:
    return app.bolt.dispatch(BoltRequest(mode="socket_mode", body=body))


# -- what becomes of it ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("/retry", "session-123", "retry session-123"),
        ("/exclude", "node-17 for 24h fan noise", "exclude node-17 for 24h fan noise"),
        ("/xid", "approve 412.1.1", "approve 412.1.1"),
        ("/xid", "", "help"),
        ("/retry", "", "retry"),
    ],
)
def test_a_command_becomes_a_request(app: SlackApp, inbox: Inbox, name: str, text: str, words: str) -> None:
    response = dispatch(app, command(name, text))
    assert (response.status, response.body) == (200, "")
    (request,) = inbox.wait()
    assert request == Request(words, "U02", 1000, "slack", "command:13.37.abc", "C01", response_url=f"{NOWHERE}answer")


def test_a_click_becomes_a_request(app: SlackApp, inbox: Inbox) -> None:
    assert dispatch(app, click()).status == 200
    (request,) = inbox.wait()
    assert (request.text, request.user, request.channel, request.thread) == ("approve 412.1.1", "U02", "C01", "")
    assert request.dedupe == "click:U02:99.1:approve:412.1.1"
    assert request.facts == {"message": "17.1"}


def test_a_second_button_of_a_kind_says_the_same_word(app: SlackApp, inbox: Inbox) -> None:
    dispatch(app, click("approve:2", "412.1.2"))
    assert inbox.wait()[0].text == "approve 412.1.2"


def test_a_message_with_replies_is_answered_in_the_channel() -> None:
    assert click_request(click(thread_ts="17.1"), 1).thread == ""


def test_a_button_in_a_thread_names_the_thread() -> None:
    assert click_request(click(thread_ts="16.0"), 1).thread == "16.0"


def test_an_old_message_with_a_button_we_no_longer_know_is_acknowledged(app: SlackApp, inbox: Inbox) -> None:
    assert dispatch(app, click("forgotten", "1")).status == 200
    assert inbox.wait()[0].text == "forgotten 1"


def test_another_names_for_the_commands(inbox: Inbox) -> None:
    app = build_app(TOKENS, inbox, base_url=NOWHERE, commands={"/gpu-retry": "retry"})
    try:
        assert dispatch(app, command("/gpu-retry", "session-1")).status == 200
        assert inbox.wait()[0].text == "retry session-1"
        assert dispatch(app, command("/retry", "session-1")).status == 404
    finally:
        app.stop()


def test_the_manifest_has_our_commands_and_scopes() -> None:
    manifest = yaml.safe_load((Path(__file__).parents[2] / "docs/slack-manifest.yaml").read_text(encoding="utf-8"))
    assert {command["command"] for command in manifest["features"]["slash_commands"]} == set(COMMANDS)
    assert set(manifest["oauth_config"]["scopes"]["bot"]) == set(SCOPES)
    assert manifest["settings"]["socket_mode_enabled"] is True
    assert manifest["settings"]["interactivity"]["is_enabled"] is True


# -- twice -------------------------------------------------------------------------------------------------------------


def test_what_slack_delivers_again_has_the_same_key(app: SlackApp, inbox: Inbox) -> None:
    for body in (command(), command(), click(), click()):
        dispatch(app, body)
    assert len(inbox.wait(4)) == 2


def test_a_second_click_is_another_request() -> None:
    first, second = click(), click()
    second["actions"][0]["action_ts"] = "99.2"
    assert click_request(first, 1).dedupe != click_request(second, 1).dedupe


def test_without_a_trigger_nothing_is_taken_for_a_repetition() -> None:
    body = command(trigger_id="")
    assert command_request(body, "", 1).dedupe != command_request(body, "", 1).dedupe


# -- the ack comes first -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("body", [command(), click()], ids=["command", "click"])
def test_acknowledged_even_when_the_inbox_raises(
    app: SlackApp, inbox: Inbox, body: dict[str, Any], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[dict[str, Any]] = []
    monkeypatch.setattr("slack_bolt.context.respond.Respond.__call__", lambda self, **what: told.append(what))
    inbox.error = RuntimeError("database is locked")
    for calls in range(1, 13):  # `ack(); raise` in one listener loses 12 of 12
        begin = time.monotonic()
        assert dispatch(app, body).status == 200
        assert time.monotonic() - begin < 1
        inbox.wait(calls)
    app.stop()
    assert [(what["text"], what["response_type"]) for what in told] == [(NOT_RECORDED, "ephemeral")] * 12
    assert "database is locked" in caplog.text


def test_acknowledged_while_the_inbox_hangs(app: SlackApp, inbox: Inbox) -> None:
    inbox.open.clear()
    begin = time.monotonic()
    for number in range(40):
        assert dispatch(app, command(trigger_id=str(number))).status == 200
    assert time.monotonic() - begin < 3
    inbox.open.set()
    assert [request.dedupe for request in inbox.wait(40)] == [f"command:{number}" for number in range(40)]


def test_what_was_acknowledged_is_recorded_before_stop_returns(app: SlackApp, inbox: Inbox) -> None:
    inbox.open.clear()
    dispatch(app, command())
    threading.Timer(0.3, inbox.open.set).start()
    app.stop()
    assert len(inbox.requests) == 1


def test_slack_need_not_be_there_to_acknowledge(app: SlackApp) -> None:
    """Bolt would ask auth.test at the first request; nothing listens at NOWHERE."""
    assert dispatch(app, command()).status == 200


# -- bad input ---------------------------------------------------------------------------------------------------------


def test_a_text_too_long_is_refused_at_once(app: SlackApp, inbox: Inbox) -> None:
    response = dispatch(app, command(text="x" * 5_000))
    assert response.status == 200
    answer = json.loads(response.body)
    assert answer["response_type"] == "ephemeral"
    assert answer["text"] == "5,000 characters; at most 1,000 are read, so nothing was done"
    dispatch(app, command(trigger_id="2"))
    inbox.wait()
    assert [request.dedupe for request in inbox.requests.values()] == ["command:2"]


@pytest.mark.parametrize(
    ("typed", "read"),
    [
        ("node-17\nfor\t24h\u00a0 fan", "node-17 for 24h fan"),
        ("no\x00de\x1b[31m-\u202e17\u200b", "node[31m-17"),
        ("a &amp; b &lt;c&gt; &amp;lt;", "a & b <c> &lt;"),
        ("<@U123|bob> <!channel> <#C1|gpu>", "<@U123|bob> <!channel> <#C1|gpu>"),
        ("node-1;rm -rf /", "node-1;rm -rf /"),
        ("@all node-[01-63]", "@all node-[01-63]"),
        ("  ", ""),
        ("x" * 1_000, "x" * 1_000),
    ],
)
def test_cleaning_keeps_what_can_be_seen(typed: str, read: str) -> None:
    assert clean(typed) == read


def test_cleaning_refuses_what_is_too_long() -> None:
    with pytest.raises(UsageError):
        clean("x" * 1_001)


@pytest.mark.parametrize(
    ("bot", "app", "says"),
    [
        ("", "xapp-1", "SLACK_BOT_TOKEN is empty"),
        ("xoxb-1", " ", "SLACK_APP_TOKEN is empty"),
        ("xapp-1", "xoxb-1", "SLACK_BOT_TOKEN does not look like one"),
        ("xoxb-1\n", "xapp-1", "SLACK_BOT_TOKEN does not look like one"),
    ],
)
def test_tokens_that_cannot_work_are_refused(bot: str, app: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says) as error:
        Tokens(bot, app)
    assert "xoxb-1" not in str(error.value)


def test_tokens_are_not_shown(app: SlackApp, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    dispatch(app, command())
    assert "test-token" not in repr(TOKENS) + caplog.text


# -- what Slack's answers mean -----------------------------------------------------------------------------------------


def reply(error: str = "", status: int = 200, **more: Any) -> SlackApiError:
    headers = more.pop("headers", {})
    data = {"ok": False, "error": error, **more}
    response = SlackResponse(client=None, http_verb="POST", api_url="", req_args={}, data=data, headers=headers,
                             status_code=status)  # fmt: skip
    return SlackApiError("failed", response)


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (reply("ratelimited", 429, headers={"Retry-After": "17"}), RateLimited),
        (reply("invalid_auth"), AuthFailed),
        (reply("account_inactive"), AuthFailed),
        (reply("channel_not_found"), Rejected),
        (reply("internal_error"), NoAnswer),
        (reply("", 503), NoAnswer),
        (reply("Received a response in a non-JSON format: <html>", 200), BadReply),
        (TimeoutError("timed out"), NoAnswer),
        (ConnectionResetError("reset"), NoAnswer),
        (json.JSONDecodeError("no", "<html>", 0), BadReply),
    ],
    ids=str,
)
def test_errors_in_our_words(error: Exception, kind: type[Exception]) -> None:
    with pytest.raises(kind) as caught, slack_errors("chat.postMessage"):
        raise error
    assert type(caught.value) is kind
    assert "chat.postMessage" in str(caught.value)


def test_a_rejection_carries_code_needed_scope_and_remedy() -> None:
    with pytest.raises(Rejected) as caught, slack_errors("conversations.history"):
        raise reply("missing_scope", needed="channels:history")
    assert caught.value.code == "missing_scope"
    assert "needs channels:history" in str(caught.value)
    assert "docs/slack-manifest.yaml" in caught.value.remedy


@pytest.mark.parametrize(("header", "wait"), [("17", 17), ("", 30), ("soon", 30)])
def test_retry_after(header: str, wait: float) -> None:
    with pytest.raises(RateLimited) as caught, slack_errors("x"):
        raise reply("ratelimited", 429, headers={"retry-after": header})
    assert caught.value.retry_after == wait


def test_sockets_are_opened_ever_more_rarely() -> None:
    assert [backoff(failures) for failures in (0, 1, 2, 3, 4, 7, 50)] == [0, 0, 1, 2, 4, 30, 30]


def test_the_client_repeats_nothing_by_itself() -> None:
    assert web_client("xoxb-1").retry_handlers == []


class History(WebClient):
    """conversations.history in pages of two."""

    def __init__(self, messages: list[dict[str, Any]]) -> None:
        super().__init__("xoxb-1", base_url=NOWHERE)
        self.pages = [messages[at : at + 2] for at in range(0, len(messages), 2)]
        self.asked: list[dict[str, Any]] = []

    def api_call(self, api_method: str, **more: Any) -> Any:
        if api_method == "auth.test":
            return {"ok": True, "user_id": "U0BOT", "bot_id": "B0BOT"}
        self.asked.append(more["params"])
        page = int(more["params"].get("cursor", 0))
        cursor = str(page + 1) if page + 1 < len(self.pages) else ""
        return {"ok": True, "messages": self.pages[page], "response_metadata": {"next_cursor": cursor}}


def posted(ts: str, block_id: str, **who: str) -> dict[str, Any]:
    return {"ts": ts, "blocks": [{"type": "section", "block_id": block_id}], **who}


def test_only_our_own_message_is_found_on_whatever_page() -> None:
    history = History(
        [
            posted("9", "1.1.main", user="U09", bot_id="B-of-another-site"),
            posted("8", "1.1.main-2", user="U0BOT"),
            {"ts": "7", "text": "hi", "user": "U02"},
            posted("6", "1.1.main", bot_id="B0BOT"),
        ]
    )
    chat = SlackChat(history)
    assert chat.find("C01", "1.1.main", 10_000) == Posted("C01", "6")
    assert chat.find("C01", "1.1", 10_000) is None
    assert history.asked[0] == {"channel": "C01", "oldest": "9400", "limit": 200}
    assert history.asked[1]["cursor"] == "1"


def test_pages_without_end_are_an_error() -> None:
    history = History([posted("9", "x", user="U09")] * 400)
    with pytest.raises(BadReply, match="pages"):
        SlackChat(history).find("C01", "1.1.main", 10_000)


# -- roles -------------------------------------------------------------------------------------------------------------


class Groups(WebClient):
    """Answers usergroups.users.list."""

    def __init__(self) -> None:
        super().__init__("xoxb-1", base_url=NOWHERE)
        self.members: dict[str, list[str]] = {"S0ONCALL": ["U02", "U03"]}
        self.asked = 0
        self.away = False

    def usergroups_users_list(self, *, usergroup: str, **_: Any) -> Any:
        self.asked += 1
        if self.away:
            raise TimeoutError("timed out")
        if usergroup not in self.members:
            raise reply("no_such_subteam")
        return {"ok": True, "users": self.members[usergroup]}


ROLES: dict[str, list[str] | str] = {"admin": ["U01"], "operator": ["S0ONCALL"], "viewer": "*"}


def roles(client: Groups, given: dict[str, list[str] | str] = ROLES, at: list[float] | None = None) -> SlackRoles:
    times = at or [0.0]
    return SlackRoles(client, given, {"alice": "U01", "bob": "U02"}, lambda: times[-1])


@pytest.mark.parametrize(
    ("user", "role"),
    [
        ("U01", "admin"), ("U02", "operator"), ("U03", "operator"), ("U09", "viewer"), ("", None),
        ("os:alice", "admin"), ("os:bob", "operator"), ("os:mallory", "viewer"), ("os:U01", "viewer"),
        ("S0ONCALL", "viewer"), ("*", "viewer"),
    ],
)  # fmt: skip
def test_roles(user: str, role: str | None) -> None:
    assert roles(Groups()).of(user) == role


@pytest.mark.parametrize("user", ["U01", "os:alice", "*", ""])
def test_an_empty_list_is_nobody(user: str) -> None:
    assert roles(Groups(), {"admin": [], "operator": []}).of(user) is None


def test_a_group_is_asked_for_once_a_minute() -> None:
    client, at = Groups(), [0.0]
    asked = roles(client, at=at)
    assert [asked.of("U02") for _ in range(3)] == ["operator"] * 3
    assert client.asked == 1
    client.members["S0ONCALL"] = []
    at.append(61.0)
    assert asked.of("U02") == "viewer"


def test_a_group_that_cannot_be_read_is_nobody_and_soon_asked_again(caplog: pytest.LogCaptureFixture) -> None:
    client, at = Groups(), [0.0]
    asked = roles(client, at=at)
    assert asked.of("U02") == "operator"
    client.away = True
    at.append(61.0)
    assert asked.of("U02") == "viewer"
    assert "S0ONCALL" in caplog.text
    client.away = False
    assert asked.of("U02") == "viewer"
    at.append(72.0)
    assert asked.of("U02") == "operator"


def test_who_is_named_needs_no_group() -> None:
    client = Groups()
    assert roles(client, {"operator": ["U05", "S0ONCALL"]}).of("U05") == "operator"
    assert client.asked == 0
