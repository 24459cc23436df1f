"""What the counters' source asks for, and when. What Prometheus makes of the questions: tests/real/test_storage.py."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from bot.sandbox.storage_counters import Site, every
from bot.sources.storage import PrometheusStorage
from bot.storage.numbers import numbers
from bot.storage.window import Floats

N = numbers()
SITE = Site(nodes=3, hours=1, saves=every(15, 1, first=5))


@dataclass
class Asked:
    """A server without a sample. asked: the span of each question."""

    asked: list[tuple[int, int]] = field(default_factory=list)

    def instant(self, query: str, at: int) -> Mapping[str, float]:
        return {"": 1.0}

    def series(self, query: str, start: int, end: int, step: int) -> list[tuple[Mapping[str, str], Floats]]:
        self.asked.append((start, end))
        return []

    def host(self, labels: Mapping[str, str], nodes: Collection[str]) -> tuple[str, bool]:
        return labels["instance"], True


def test_before_any_run_is_known_nothing_is_asked_and_then_all_that_was() -> None:
    """The first look of a new site knows no run: what was read then would never be seen with one."""
    server, now = Asked(), SITE.start + 3600
    source = PrometheusStorage(server, ["instance"], N)  # type: ignore[arg-type]
    assert source.look(now, [], SITE.names) == () and server.asked == []
    source.look(now + N.step, [SITE.span], SITE.names)
    assert min(start for start, _ in server.asked) <= now - N.history + N.step
    source.look(now + 2 * N.step, [], SITE.names)
    assert server.asked[-1] == (now + 2 * N.step, now + 2 * N.step)
