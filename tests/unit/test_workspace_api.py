"""The Web API over loopback, asked by Slack's own client."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest
from slack_sdk import WebClient
from slack_sdk.errors import SlackApiError

from bot.errors import ConfigError
from bot.sandbox.workspace import ADMIN, BOT, CHANNEL, ON_CALL, OPERATOR, VIEWER, Server, Workspace, serve, slack_site
from bot.slack import SlackChat, SlackRoles, Tokens
from bot.slack.files import SlackFiles
from templates.blocks import Button, Card, card_blocks
from templates.validate import validate

NOWHERE = "C0NOWHERE"
CARD = card_blocks(Card("412.1.main", ("*Broken*",), (Button("ack", "Seen", "412.1"),), "footer"))


@pytest.fixture
def server() -> Iterator[Server]:
    with serve(Workspace()) as server:
        yield server


@pytest.fixture
def client(server: Server) -> WebClient:
    return WebClient(server.bot_token, base_url=server.api_url, retry_handlers=[])


def error_of(call: Any, **arguments: Any) -> str:
    with pytest.raises(SlackApiError) as caught:
        call(**arguments)
    assert caught.value.response.status_code == 200, "Slack says no with a 200"
    return str(caught.value.response["error"])


# -- who may call ------------------------------------------------------------------------------------------------------


def test_who_may_call(server: Server, client: WebClient) -> None:
    assert client.api_test(foo="bar")["args"] == {"foo": "bar"}
    assert error_of(client.api_test, error="any_error") == "any_error"
    assert error_of(WebClient(None, base_url=server.api_url).auth_test) == "not_authed"
    assert error_of(WebClient("xoxb-stale", base_url=server.api_url).auth_test) == "invalid_auth"
    assert error_of(WebClient(server.app_token, base_url=server.api_url).auth_test) == "not_allowed_token_type"
    assert error_of(client.apps_connections_open, app_token=server.bot_token) == "not_allowed_token_type"
    assert error_of(client.api_call, api_method="chat.fly") == "unknown_method"


def test_tokens_are_this_servers_own(server: Server) -> None:
    with serve(Workspace()) as other:
        assert len({server.bot_token, server.app_token, other.bot_token, other.app_token}) == 4
        assert server.url.rsplit("/", 2)[1] != other.url.rsplit("/", 2)[1]
    Tokens(server.bot_token, server.app_token)


def test_a_port_that_is_taken(server: Server) -> None:
    port = int(server.api_url.split(":")[2].partition("/")[0])
    with pytest.raises(ConfigError, match=f"cannot listen on 127.0.0.1:{port}"):
        serve(Workspace(), port=port)


def test_doctor_is_content(server: Server, client: WebClient) -> None:
    assert [state.problem for state in SlackChat(client).check(CHANNEL)] == ["", "", ""]
    assert "channel_not_found" in SlackChat(client).check(NOWHERE)[2].problem


def test_roles_as_the_page_shows_them(server: Server, client: WebClient) -> None:
    site = slack_site(server)
    roles = SlackRoles(client, site.roles.model_dump(), site.users)
    assert [roles.of(user) for user in (ADMIN, OPERATOR, VIEWER, "UNOBODY")] == ["admin", "operator", "viewer", None]
    assert [roles.of(f"os:{user}") for user in site.users] == ["admin"]
    by_group = SlackRoles(client, {"operator": [ON_CALL]}, {})
    assert [by_group.of(user) for user in (OPERATOR, VIEWER)] == ["operator", None]


# -- messages ----------------------------------------------------------------------------------------------------------


def test_post_read_edit(server: Server, client: WebClient) -> None:
    posted = client.chat_postMessage(channel=CHANNEL, text="Broken", blocks=CARD)
    assert (posted["channel"], posted["message"]["user"]) == (CHANNEL, BOT)
    client.chat_postMessage(channel=CHANNEL, text="a line", thread_ts=posted["ts"])
    (told,) = client.conversations_history(channel=CHANNEL)["messages"]
    assert (told["ts"], told["reply_count"], told["blocks"][0]["block_id"]) == (posted["ts"], 1, "412.1.main")
    assert validate(told["blocks"]) == []
    main, line = client.conversations_replies(channel=CHANNEL, ts=posted["ts"])["messages"]
    assert (main["text"], line["text"], line["thread_ts"]) == ("Broken", "a line", posted["ts"])
    client.chat_update(channel=CHANNEL, ts=posted["ts"], text="Mended")
    assert len(server.workspace.message(posted["ts"]).blocks) == 3, "blocks that are not named stay"
    client.chat_update(channel=CHANNEL, ts=posted["ts"], text="Mended", blocks=[])
    assert server.workspace.message(posted["ts"]).blocks == ()


def test_our_own_adapter_finds_its_message_again(client: WebClient) -> None:
    chat = SlackChat(client)
    posted = chat.post(CHANNEL, "Broken", CARD)
    line = chat.post(CHANNEL, "line", card_blocks(Card("412.1.line", ("x",))), posted.ts)
    since = int(float(posted.ts))
    assert chat.find(CHANNEL, "412.1.main", since) == posted
    assert chat.find(CHANNEL, "412.1.line", since, posted.ts) == line
    assert chat.find(CHANNEL, "412.1.line", since) is None


def test_ephemeral_messages_are_told_to_nobody_else(server: Server, client: WebClient) -> None:
    answer = client.chat_postEphemeral(channel=CHANNEL, user=OPERATOR, text="only you")
    assert server.workspace.message(answer["message_ts"]).to == OPERATOR
    assert client.conversations_history(channel=CHANNEL)["messages"] == []
    assert error_of(client.chat_update, channel=CHANNEL, ts=answer["message_ts"], text="x") == "message_not_found"


def test_what_is_refused(server: Server, client: WebClient) -> None:
    theirs = server.workspace.post(VIEWER, "hello")
    ours = client.chat_postMessage(channel=CHANNEL, text="x")["ts"]
    post, update, whisper = client.chat_postMessage, client.chat_update, client.chat_postEphemeral
    assert error_of(post, channel=NOWHERE, text="x") == "channel_not_found"
    assert error_of(client.api_call, api_method="chat.postMessage", json={"channel": CHANNEL}) == "no_text"
    assert error_of(post, channel=CHANNEL, text="x", thread_ts="1.000001") == "cannot_reply_to_message"
    assert error_of(update, channel=CHANNEL, ts="1.000001", text="x") == "message_not_found"
    assert error_of(update, channel=CHANNEL, ts=theirs.ts, text="x") == "cant_update_message"
    assert error_of(update, channel=CHANNEL, ts=ours, text="x" * 4001) == "msg_too_long"
    assert error_of(whisper, channel=CHANNEL, user="U404", text="x") == "user_not_in_channel"
    assert error_of(client.conversations_replies, channel=CHANNEL, ts="1.000001") == "thread_not_found"
    assert error_of(client.conversations_history, channel=CHANNEL, oldest="soon") == "invalid_arguments"
    assert error_of(client.users_info, user="U404") == "user_not_found"
    assert error_of(client.usergroups_users_list, usergroup="S404") == "no_such_subteam"


def test_refused_blocks_say_what_is_wrong(client: WebClient) -> None:
    with pytest.raises(SlackApiError) as caught:
        client.chat_postMessage(channel=CHANNEL, text="x", blocks=[{"type": "section"}])
    assert caught.value.response["error"] == "invalid_blocks"
    assert "block 0" in caught.value.response["response_metadata"]["messages"][0]


def test_pages_of_history_shift_nothing(client: WebClient) -> None:
    for number in range(5):
        client.chat_postMessage(channel=CHANNEL, text=str(number))
    first = client.conversations_history(channel=CHANNEL, limit=2)
    client.chat_postMessage(channel=CHANNEL, text="new")
    second = client.conversations_history(channel=CHANNEL, limit=2, cursor=first["response_metadata"]["next_cursor"])
    assert [m["text"] for m in (*first["messages"], *second["messages"])] == ["4", "3", "2", "1"]
    assert (second["has_more"], client.conversations_history(channel=CHANNEL)["has_more"]) == (True, False)
    assert error_of(client.conversations_history, channel=CHANNEL, cursor="nonsense") == "invalid_cursor"


def test_times_of_history(client: WebClient) -> None:
    stamps = [client.chat_postMessage(channel=CHANNEL, text=str(number))["ts"] for number in range(3)]

    def told(**arguments: Any) -> list[str]:
        found = client.conversations_history(channel=CHANNEL, **arguments)["messages"]
        return [message["text"] for message in found]

    assert told(oldest=stamps[0]) == ["2", "1"]
    assert told(oldest=stamps[0], inclusive=True) == ["2", "1", "0"]
    assert told(latest=stamps[1]) == ["0"]


def test_people_and_the_channel(server: Server, client: WebClient) -> None:
    server.workspace.topic = "quiet"
    channel = client.conversations_info(channel=CHANNEL)["channel"]
    assert (channel["is_member"], channel["topic"]["value"]) == (True, "quiet")
    assert [user["real_name"] for user in client.users_list()["members"]] == ["Alice", "Bob", "Carol"]
    assert client.users_info(user=ADMIN)["user"]["name"] == "alice"
    assert client.usergroups_list()["usergroups"][0]["handle"] == "on-call"
    assert client.usergroups_users_list(usergroup=ON_CALL)["users"] == [OPERATOR]


# -- how it may be asked -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["query", "form", "json"])
def test_query_form_and_json_are_the_same(server: Server, how: str) -> None:
    given = {"channel": CHANNEL, "text": "hello", "blocks": json.dumps(CARD) if how != "json" else CARD}
    form = urllib.parse.urlencode({k: str(v) for k, v in given.items()})
    url = f"{server.api_url}chat.postMessage" + (f"?{form}" if how == "query" else "")
    data = {"query": b"", "form": form.encode(), "json": json.dumps(given).encode()}[how]
    kind = "application/json; charset=utf-8" if how == "json" else "application/x-www-form-urlencoded"
    headers = {"Authorization": f"Bearer {server.bot_token}", "Content-Type": kind}
    with urllib.request.urlopen(urllib.request.Request(url, data, headers)) as answer:
        assert json.load(answer)["ok"]
    assert len(server.workspace.channel()[0].blocks) == 3


def test_a_body_that_is_no_json_is_empty(server: Server) -> None:
    headers = {"Authorization": f"Bearer {server.bot_token}", "Content-Type": "application/json"}
    request = urllib.request.Request(f"{server.api_url}chat.postMessage", b"[{", headers)
    with urllib.request.urlopen(request) as answer:
        assert json.load(answer) == {"ok": False, "error": "channel_not_found"}


# -- files -------------------------------------------------------------------------------------------------------------

PNG = b"\x89PNG\r\n\x1a\n" + b"\0" * 20


def test_a_chart_is_uploaded_and_shared(server: Server, client: WebClient) -> None:
    main = client.chat_postMessage(channel=CHANNEL, text="Digest")["ts"]
    client.files_upload_v2(
        file_uploads=[{"content": PNG, "filename": "lost.png", "title": "GPU-hours lost"}],
        channel=CHANNEL,
        thread_ts=main,
        initial_comment="two charts",
    )
    (message,) = server.workspace.replies(main)
    assert (message.text, len(message.files)) == ("two charts", 1)
    assert (
        client.conversations_replies(channel=CHANNEL, ts=main)["messages"][1]["files"][0]["title"] == "GPU-hours lost"
    )
    with urllib.request.urlopen(f"{server.url}files/{message.files[0]}") as answer:
        assert (answer.read(), answer.headers["Content-Type"]) == (PNG, "image/png")


def test_our_own_adapter_uploads_charts_and_finds_them(server: Server, client: WebClient) -> None:
    files, main = SlackFiles(client), str(client.chat_postMessage(channel=CHANNEL, text="Digest")["ts"])
    files.upload(CHANNEL, main, [("lost.png", "GPU-hours lost", PNG), ("regained.png", "Time to regained", PNG)])
    assert files.find(CHANNEL, main, ["lost.png", "regained.png"])
    assert not files.find(CHANNEL, main, ["other.png"])
    assert len(server.workspace.replies(main)) == 1


def test_an_upload_goes_to_its_own_address_only(server: Server, client: WebClient) -> None:
    assert error_of(client.files_completeUploadExternal, files=[{"id": "F1"}]) == "file_not_found"
    base = server.api_url.removesuffix("/api/")
    with pytest.raises(urllib.error.HTTPError, match="404"):
        urllib.request.urlopen(f"{base}/upload/guessed", PNG)
