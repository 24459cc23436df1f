"""A real NFS server that hangs or is slow under a real client: the bot tells it while it lasts, and when it is over."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import mkdtemp

import pytest

from bot.model import Incident, Stall
from tests.real import nfs_guest
from tests.real.exporter import Exporter
from tests.real.nfs_guest import EXPORT, Guest, NfsServer
from tests.real.prometheus import Prometheus
from tests.real.storage_bot import StorageBot
from tests.real.supervise import eventually

pytestmark = [pytest.mark.real, pytest.mark.slow, pytest.mark.timeout(600)]

SCRAPE = 3  # s; an emulated guest takes one to answer
# A guest without KVM writes some MB/s, and half of that while the machine is busy with something else.
NUMBERS = {
    "floor_bytes": 200_000,
    "gap": "30s",
    "settle": "7s",
    "least": "10s",
    "frozen_for": "5s",
    "judged_over": "20s",
    "normal_saves": 1,
    "slow": 0.2,
    "late": 4.0,
    "regular": 1.0,
    "overdue": 10.0,
}
# A slow server takes ten seconds from piece to piece, which must not end a save, and from save to save it takes longer.
PATIENT = {"rest": 20, "settle": "15s"}
USUAL = 4  # saves before anything is done to the server
LATER = 2.5  # s for each answer, of which a piece needs half a dozen in turn: a save takes minutes instead of seconds


@dataclass
class Lab:
    server: NfsServer
    guest: Guest
    bot: StorageBot

    def until(self, check: str, within: float) -> None:
        """Rounds of the bot until the newest entry of its story begins so."""
        self._turn(lambda: self.bot.story()[-1:] != [] and self.bot.story()[-1][1].startswith(check), check, within)

    def until_named(self, verdict: str, within: float) -> None:
        """Rounds of the bot until the stall has this verdict."""
        self._turn(lambda: bool(self.bot.incidents()) and self.stall.verdict == verdict, verdict, within)

    def _turn(self, check: Callable[[], bool], wanted: str, within: float) -> None:
        end = time.time() + within
        while not check():
            story, console = self.bot.story(), self.guest.console()[-1000:]
            assert time.time() < end, f"not {wanted!r} within {within} s but {story}; guest:\n{console}"
            self.bot.turn()

    def saves(self, more: int, within: float = 120) -> None:
        """Rounds of the bot while the guest completes so many saves."""
        end, goal = time.time() + within, self.guest.saved() + more
        while self.guest.saved() < goal:
            assert time.time() < end, f"no {more} saves within {within} s; guest:\n{self.guest.console()[-1000:]}"
            self.bot.turn()

    def writing(self) -> None:
        """Waits for the middle of a save."""
        before = self.guest.saved()
        eventually(lambda: self.guest.saved() > before, within=60, every=0.2, why="a save ends")
        eventually(self.server.writes, within=60, every=0.2, why="the next one has begun")

    def kinds(self) -> list[str]:
        """The story but for what else became known."""
        return [text.partition(":")[0] for _, text in self.bot.story() if not text.startswith("now")]

    @property
    def newest(self) -> Incident:
        return max(self.bot.incidents(), key=lambda i: (i.id, i.episode))

    @property
    def stall(self) -> Stall:
        assert self.newest.stall
        return self.newest.stall


@pytest.fixture
def lab(real_root: Path, request: pytest.FixtureRequest) -> Iterator[Lab]:
    """Parametrised with what is otherwise: `rest` of the guest, numbers of the bot."""
    numbers = {"rest": 10, **NUMBERS, **getattr(request, "param", {})}
    reasons = nfs_guest.missing()
    if reasons and os.environ.get("XIDBOT_REAL") == "required":
        pytest.fail("; ".join(reasons))
    if reasons:
        pytest.skip("; ".join(reasons))
    root, start, exporter = Path(mkdtemp(prefix="nfs-", dir=real_root)), int(time.time()), Exporter(1)
    exporter.nodes = []
    server = NfsServer(root / "server")
    guest = Guest(root / "guest", server, numbers.pop("rest"))
    job = {"job_name": "guest", "static_configs": [{"targets": [guest.target], "labels": {"instance": "node-01:9100"}}]}
    prometheus = Prometheus(root / "prometheus", exporter, scrape=f"{SCRAPE}s", more=[job])
    bot = StorageBot(root / "bot", prometheus.url, {"1": 1}, start, numbers)
    try:
        guest.saves(1)
        yield Lab(server, guest, bot)
    finally:
        bot.close()
        prometheus.stop()
        guest.stop()
        server.stop()
        exporter.stop()


def test_a_hang_is_told_while_it_lasts_and_when_it_is_over(lab: Lab) -> None:
    lab.saves(USUAL)
    assert lab.bot.story() == []
    lab.writing()
    hung = time.time()
    lab.server.hang()
    lab.until("opened: hang server", within=90)
    assert lab.newest.subject == EXPORT
    assert lab.stall.measures.waiting_nodes == 1 and lab.stall.onset >= hung - SCRAPE
    answered = time.time()
    lab.server.answer()
    lab.until("closed", within=180)
    assert lab.stall.ended and lab.stall.ended >= answered - SCRAPE
    assert lab.kinds() == ["opened", "over", "closed"]


@pytest.mark.parametrize("lab", [PATIENT], indirect=True)
def test_a_slow_server_is_told_while_it_lasts_and_when_it_is_over(lab: Lab) -> None:
    lab.saves(USUAL)
    assert lab.bot.story() == []
    lab.server.slow(LATER)
    slow = time.time()
    lab.until_named("server", within=240)
    measured = lab.stall.measures
    assert lab.newest.subject == EXPORT and lab.stall.rule == "slow_save" and lab.stall.onset >= slow - SCRAPE
    assert measured.rtt and measured.rtt_usual and measured.rtt >= LATER / 2 > measured.rtt_usual
    answered = time.time()
    lab.server.answer()
    lab.until("closed", within=180)
    assert lab.stall.ended and lab.stall.ended >= answered - SCRAPE
    assert lab.kinds() == ["opened", "over", "closed"]
