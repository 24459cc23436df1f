"""A recording asked moment by moment shows what a watch sees that looks at it whole."""

from __future__ import annotations

from dataclasses import replace

from bot.sandbox.storage_counters import Site, Spell, StorageCounters, every
from bot.storage.numbers import numbers
from bot.storage.replay import StorageReplay
from bot.storage.watch import storage_day
from bot.storage.window import StorageWindow


def test_rows_asked_one_by_one_are_those_of_the_whole() -> None:
    n = numbers().model_copy(update={"history": 3600})
    slow = Spell("server", 65 * 60, 85 * 60, 0.1 * 6 * 670e6)
    site = Site(nodes=6, spares=0, hours=1.75, saves=every(15, 1.75, first=5), server=40e9, spells=(slow,))
    site = replace(site, start=site.start // n.step * n.step)
    whole = StorageCounters(site).window(n.step)
    asked: list[tuple[int, int]] = []

    def window(start: int, end: int) -> StorageWindow:
        asked.append((start, end))
        return whole.part((start - site.start) // n.step, (end - site.start) // n.step + 1)

    end = int(whole.times[-1])
    begin = site.start + n.history
    replayed = StorageReplay(window, [site.span], n, begin, end)
    seen = [replayed.views(at) for at in range(begin, end + 1, n.step)]
    assert seen == [row.views for row in storage_day(whole, [site.span], n) if row.at >= begin]
    assert asked[0][0] == site.start and asked[-1][1] == end
    struck = [at for at in range(begin + n.step, end + 1, n.step) if replayed.strikes(at, n.step)]
    onset = next(v[0].stall.onset for v in seen if v and v[0].stall)
    assert onset in struck and len(struck) < 40
    assert replayed.views(end + 3600) == ()
