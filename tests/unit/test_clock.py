"""The loops' clock ends as it began: in order."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from bot import clock as clocks
from bot.clock import LiveClock


@pytest.fixture
def clock() -> Iterator[LiveClock]:
    made = LiveClock()
    yield made
    made.stop()


class Turn:
    """Begins and then waits for `go`."""

    def __init__(self) -> None:
        self.begun, self.go, self.count = threading.Event(), threading.Event(), 0

    def __call__(self) -> None:
        self.count += 1
        self.begun.set()
        assert self.go.wait(30)


def test_it_stops_when_the_turn_under_way_has_ended(clock: LiveClock) -> None:
    turn = Turn()
    wake = clock.every(3600, "tick", turn)
    assert turn.begun.wait(30)
    wake()  # asks for one more, which must not come
    stopping = threading.Thread(target=clock.stop)
    stopping.start()
    stopping.join(0.05)
    assert stopping.is_alive()
    turn.go.set()
    stopping.join(30)
    assert not stopping.is_alive()
    wake()
    assert turn.count == 1


def test_a_turn_that_hangs_is_left_behind_with_a_word(
    clock: LiveClock, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(clocks, "LEAVE", 0.05)
    turn = Turn()
    clock.every(3600, "tick", turn)
    assert turn.begun.wait(30)
    clock.stop()
    assert "tick: still in a turn" in caplog.text
    turn.go.set()
