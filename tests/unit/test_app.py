"""The bot begins and ends in order: nothing uses what is already closed."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from bot import clock as clocks
from bot.app import App
from bot.clock import LiveClock
from bot.errors import AuthFailed
from bot.site import read_site
from bot.slack import Tokens
from store.store import Store
from tests.real.faultproxy import FaultProxy

SITE = """\
site: {{name: haein, database: {root}/bot.db}}
prometheus: {{url: "http://127.0.0.1:1", timeout: 1s}}
scheduler: {{conf: {root}/absent.conf, timeout: 1s}}
slack: {{channel: C0123, api_url: "{url}/api/"}}
"""


class StillClock:
    """Turns nothing; tells whether it was stopped."""

    def __init__(self) -> None:
        self.stopped = False

    def now(self) -> int:
        return 1_800_000_000

    def every(self, seconds: float, name: str, turn: Callable[[], None]) -> Callable[[], None]:
        return lambda: None

    def stop(self) -> bool:
        self.stopped = True
        return True


@pytest.fixture
def slack() -> Iterator[FaultProxy]:
    with FaultProxy("http://127.0.0.1:1") as proxy:
        yield proxy


def app(tmp_path: Path, slack: FaultProxy, tokens: Tokens | None = None) -> App:
    (tmp_path / "xidbot.yaml").write_text(SITE.format(root=tmp_path, url=slack.url))
    return App(read_site(tmp_path / "xidbot.yaml"), tokens=tokens)


def test_a_turn_that_outlives_the_end_still_finds_its_database(
    tmp_path: Path, slack: FaultProxy, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(clocks, "LEAVE", 0.05)
    bot = app(tmp_path, slack)
    begun, go, done = threading.Event(), threading.Event(), threading.Event()

    def tick(now: int) -> None:
        begun.set()
        assert go.wait(30)
        try:
            bot.store.set_cursor("done", "what it did to the cluster")
        finally:
            done.set()

    monkeypatch.setattr(bot, "tick", tick)
    running = threading.Thread(target=bot.run, args=(LiveClock(),))
    running.start()
    assert begun.wait(30)
    bot.stop()
    running.join(30)
    bot.close()
    go.set()
    assert done.wait(30)
    assert bot.store.cursor("done") and bot.store.lease_holder()
    assert "closed database" not in caplog.text
    bot.store.close()


def test_a_bot_at_rest_gives_its_lease_and_its_database_back(tmp_path: Path, slack: FaultProxy) -> None:
    bot = app(tmp_path, slack)
    bot.stop()
    bot.run(StillClock())
    bot.close()
    other = Store.open(tmp_path / "bot.db")
    assert other.lease_holder() == ""
    other.close()


def test_loops_end_with_a_slack_that_refuses_the_tokens(tmp_path: Path, slack: FaultProxy) -> None:
    slack.fault("/", status=200, body='{"ok": false, "error": "invalid_auth"}', times=None)
    bot, clock = app(tmp_path, slack, Tokens("xoxb-1", "xapp-1")), StillClock()
    with pytest.raises(AuthFailed):
        bot.run(clock)
    assert clock.stopped
    bot.close()
