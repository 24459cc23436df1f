"""What the workspace keeps when the bot is restarted, and that a bot goes on editing what it had posted."""

from __future__ import annotations

from pathlib import Path

import pytest

from bot.errors import ConfigError
from bot.sandbox.workspace import BOT, CHANNEL, OPERATOR, VIEWER, Refused, memory, remembered, serve
from bot.sandbox.workspace.state import Message
from bot.slack import SlackChat, web_client
from templates.blocks import Button, Card, card_blocks

CARD = card_blocks(Card("412.1.main", ("*Broken*",), (Button("approve", "Approve", "412.1.1"),)))
PNG = b"\x89PNG\r\n\x1a\n"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "xidbot.db.workspace"


def test_everything_is_there_again(path: Path) -> None:
    before = remembered(path)
    main = before.post(BOT, "Broken", CARD)
    file = before.files.receive(before.files.expect("lost.png").secret, PNG)
    before.files.entitle(file.id, "GPU-hours")
    before.post(BOT, "", thread=main.ts, files=[file.id])
    before.post(BOT, "only Bob", to=OPERATOR)
    before.edit(main.ts, "Mended", CARD)
    gone = before.post(VIEWER, "oops")
    before.delete(gone.ts)
    after = remembered(path)
    assert [message.text for message in after.channel(OPERATOR)] == ["Mended", "only Bob"]
    assert after.message(main.ts).blocks == before.message(main.ts).blocks
    assert [message.files for message in after.replies(main.ts)] == [(file.id,)]
    assert (after.files.get(file.id).data, after.files.get(file.id).title) == (PNG, "GPU-hours")
    assert "oops" not in path.read_text()
    assert path.stat().st_mode & 0o077 == 0
    assert after.changed_since(after.version, OPERATOR) == []


def test_new_messages_come_after_the_old_ones(path: Path) -> None:
    old = remembered(path).post(BOT, "old")
    after = remembered(path)
    after.clock = lambda: 1.0  # set back meanwhile
    assert after.post(BOT, "new").at > old.at
    assert after.changed_since(1, VIEWER)[0].text == "new"


def test_a_line_that_was_cut_off_is_passed_over(path: Path) -> None:
    remembered(path).post(BOT, "whole")
    with path.open("a") as out:
        out.write('{"ts": "17')
    after = remembered(path)
    after.post(BOT, "and on")
    assert [message.text for message in remembered(path).channel()] == ["whole", "and on"]


def test_old_messages_go_with_their_threads(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = remembered(path)
    for number in range(4):
        main = before.post(BOT, str(number))
        before.post(BOT, f"below {number}", thread=main.ts)
    monkeypatch.setattr(memory, "ROOTS", 2)
    after = remembered(path)
    assert [message.text for message in after.channel()] == ["2", "3"]
    assert len(path.read_text().splitlines()) == 4


def test_a_place_that_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be kept there"):
        remembered(tmp_path / "nowhere" / "x.workspace")


def test_what_cannot_be_kept_is_not_shown(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    workspace = remembered(path)

    def full(_path: Path, _thing: Message) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(memory, "_append", full)
    with pytest.raises(OSError, match="No space"):
        workspace.post(BOT, "lost")
    assert (workspace.channel(), workspace.version) == ([], 0)


def test_a_restarted_bot_edits_what_it_had_posted(path: Path) -> None:
    with serve(remembered(path)) as server:
        posted = SlackChat(web_client(server.bot_token, server.api_url)).post(CHANNEL, "Broken", CARD)
    with serve(remembered(path)) as server:
        chat = SlackChat(web_client(server.bot_token, server.api_url))
        assert chat.find(CHANNEL, "412.1.main", int(float(posted.ts))) == posted
        chat.update(posted, "Mended", [])
        assert server.workspace.message(posted.ts).text == "Mended"
        with pytest.raises(Refused):
            server.click(OPERATOR, posted.ts, "approve")
