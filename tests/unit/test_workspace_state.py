"""The workspace without a network: messages, threads, what one person sees, and what has changed since."""

from __future__ import annotations

import threading
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.sandbox.workspace import ADMIN, BOT, OPERATOR, VIEWER, Refused, Workspace, render
from bot.sandbox.workspace.content import checked
from bot.sandbox.workspace.files import Files
from bot.sandbox.workspace.state import Message
from templates.blocks import Button, Card, card_blocks


@pytest.fixture
def workspace() -> Workspace:
    return Workspace(clock=lambda: 1000.5)


def texts(messages: Iterable[Message]) -> list[str]:
    return [message.text for message in messages]


def test_each_message_is_later_than_the_one_before(workspace: Workspace) -> None:
    stamps = [workspace.post(BOT, "x").ts for _ in range(3)]
    assert stamps == ["1000.500000", "1000.500001", "1000.500002"]


def test_channel_and_thread(workspace: Workspace) -> None:
    first = workspace.post(BOT, "first")
    reply = workspace.post(VIEWER, "reply", thread=first.ts)
    workspace.post(BOT, "to the reply", thread=reply.ts)
    workspace.post(BOT, "second")
    assert texts(workspace.channel()) == ["first", "second"]
    assert texts(workspace.replies(first.ts)) == ["reply", "to the reply"], "a thread has one level"


def test_a_thread_that_never_was(workspace: Workspace) -> None:
    with pytest.raises(Refused, match="cannot_reply_to_message"):
        workspace.post(BOT, "x", thread="1.000001")


def test_what_one_person_sees(workspace: Workspace) -> None:
    root = workspace.post(BOT, "for all")
    workspace.post(BOT, "for Bob", to=OPERATOR)
    workspace.post(BOT, "for Bob below", to=OPERATOR, thread=root.ts)
    assert texts(workspace.channel()) == texts(workspace.channel(ADMIN)) == ["for all"]
    assert texts(workspace.channel(OPERATOR)) == ["for all", "for Bob"]
    assert (texts(workspace.replies(root.ts)), texts(workspace.replies(root.ts, OPERATOR))) == ([], ["for Bob below"])
    assert texts(workspace.whispers(OPERATOR)) == ["for Bob", "for Bob below"]
    assert texts(workspace.changed_since(0, ADMIN)) == ["for all"]


def test_edits_keep_place_and_thread(workspace: Workspace) -> None:
    first, _ = workspace.post(BOT, "first"), workspace.post(BOT, "second")
    workspace.post(BOT, "reply", thread=first.ts)
    workspace.edit(first.ts, "edited", [])
    assert texts(workspace.channel()) == ["edited", "second"]
    assert workspace.message(first.ts).edited == "1000.500000"
    assert texts(workspace.replies(first.ts)) == ["reply"]


def test_what_was_deleted_is_gone_and_its_thread_stays(workspace: Workspace) -> None:
    first = workspace.post(BOT, "first")
    workspace.delete(first.ts)
    for change in (lambda: workspace.edit(first.ts, "x", []), lambda: workspace.delete(first.ts)):
        with pytest.raises(Refused, match="message_not_found"):
            change()
    assert workspace.channel() == []
    workspace.post(BOT, "reply", thread=first.ts)
    assert [m.deleted for m in workspace.changed_since(0, ADMIN)] == [False, True]


def test_who_has_seen_a_change_asks_for_what_came_after(workspace: Workspace) -> None:
    first, second = workspace.post(BOT, "first"), workspace.post(BOT, "second")
    seen = workspace.version
    assert workspace.changed_since(seen, ADMIN) == []
    workspace.edit(first.ts, "edited", [])
    assert texts(workspace.changed_since(seen, ADMIN)) == ["edited"]
    seen = workspace.version
    workspace.post(BOT, "reply", thread=second.ts)
    assert texts(workspace.changed_since(seen, ADMIN)) == ["reply", "second"], "the count of replies has changed too"


def test_watchers_are_told_and_can_leave(workspace: Workspace) -> None:
    told: list[int] = []
    with workspace.watched(lambda: told.append(workspace.version)):
        message = workspace.post(BOT, "x")
        workspace.edit(message.ts, "y", [])
        workspace.topic = "busy"
        workspace.delete(message.ts)
    workspace.post(BOT, "z")
    assert told == [1, 2, 2, 3]


def test_many_threads_at_once(workspace: Workspace) -> None:
    threads = [threading.Thread(target=lambda: [workspace.post(BOT, "x") for _ in range(50)]) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({message.ts for message in workspace.channel()}) == workspace.version == 400


def test_blocks_keep_their_ids_and_others_get_one(workspace: Workspace) -> None:
    blocks = card_blocks(Card("412.1.main", ("x",), (Button("ack", "Seen", "412.1"),), "footer"))
    ids = [str(block["block_id"]) for block in workspace.post(BOT, "x", blocks).blocks]
    assert ids[0] == "412.1.main"
    assert all(ids) and len(set(ids)) == 3


# -- content -----------------------------------------------------------------------------------------------------------

SECTION = {"type": "section", "text": {"type": "mrkdwn", "text": "x"}}


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ({}, "no_text"),
        ({"text": " ", "blocks": []}, "no_text"),
        ({"text": "x", "blocks": "[not json"}, "invalid_blocks_format"),
        ({"text": "x", "blocks": {"type": "section"}}, "invalid_blocks_format"),
        ({"text": "x", "blocks": ["section"]}, "invalid_blocks_format"),
        ({"text": "x", "blocks": [{"type": "section"}]}, "invalid_blocks"),
        ({"text": "x", "blocks": [{**SECTION, "colour": "red"}]}, "invalid_blocks"),
        ({"text": "x", "blocks": [SECTION] * 51}, "invalid_blocks"),
        ({"text": "x", "blocks": [{"type": "section", "text": {"type": "mrkdwn", "text": "x" * 2900}}] * 5},
         "msg_blocks_too_long"),
    ],
)  # fmt: skip
def test_what_slack_does_not_take(given: dict[str, object], error: str) -> None:
    with pytest.raises(Refused) as caught:
        checked(given)
    assert caught.value.code == error
    assert bool(caught.value.messages) == (error == "invalid_blocks")


def test_how_long_a_text_may_be() -> None:
    assert len(checked({"text": "x" * 50_000})[0]) == 40_000
    with pytest.raises(Refused, match="msg_too_long"):
        checked({"text": "x" * 4_001}, 4_000)


WORDS = st.sampled_from(
    ["type", "text", "section", "actions", "elements", "button", "mrkdwn", "plain_text", "context", "image", "confirm",
     "alt_text", "image_url", "slack_file", "id", "action_id", "block_id", "value", "fields", "accessory", "style", "x"]
)  # fmt: skip
JSON = st.recursive(
    WORDS | st.none() | st.booleans() | st.integers(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=5),
    max_leaves=12,
)


@given(st.lists(st.dictionaries(WORDS, JSON, max_size=5), max_size=3))
def test_whatever_is_sent_is_refused_or_can_be_shown(sent: list[dict[str, object]]) -> None:
    try:
        _, blocks = checked({"text": "x", "blocks": sent})
    except Refused:
        return
    render.blocks(blocks or [], render.Reader())


# -- files -------------------------------------------------------------------------------------------------------------

PNG = b"\x89PNG\r\n\x1a\n"


def test_an_upload_in_its_three_steps() -> None:
    files = Files()
    file = files.expect("lost.png")
    for early in (lambda: files.get(file.id), lambda: files.entitle(file.id, "x"), lambda: files.receive("?", PNG)):
        with pytest.raises(Refused, match="file_not_found"):
            early()
    files.receive(file.secret, PNG)
    assert (files.entitle(file.id, "GPU-hours").title, files.get(file.id).kind) == ("GPU-hours", "image/png")
    with pytest.raises(Refused, match="file_not_found"):
        files.receive(file.secret, b"something else")


def test_a_picture_is_one_by_its_bytes() -> None:
    files = Files()
    file = files.receive(files.expect("x.png").secret, b"<svg onload=alert(1)>")
    assert file.kind == ""
    assert file.secret not in repr(file)
