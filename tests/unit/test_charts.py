"""What is drawn is what was counted; pixels are for eyes."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from matplotlib.collections import PathCollection
from matplotlib.container import BarContainer
from matplotlib.figure import Figure

from bot.charts import COLOURS, GREY, charts, lost_by_day, time_to_regained
from bot.digest import Digest, digest
from bot.digest_records import Records
from bot.model import Kind
from bot.outcomes import Chain, Class
from bot.weeks import week_of

WEEK = week_of("2026-W48", "UTC")
EMPTY = digest(Records(), WEEK, WEEK.due)
MINUTE = 60


def chain(name: Class, minutes: float, *, regained: bool = True) -> Chain:
    return Chain(name, "gpu_fault", 1, regained, regained, int(minutes * MINUTE), True, False)


def with_chains(*chains: Chain) -> Digest:
    return replace(EMPTY, chains=chains)


def offsets(marks: Any) -> list[tuple[float, float]]:
    return [(float(x), float(y)) for x, y in marks.get_offsets()]


def dots(figure: Figure, label: str) -> list[tuple[float, int]]:
    """(minutes, row) of every mark with this label."""
    found = [c for c in figure.axes[0].collections if isinstance(c, PathCollection) and c.get_label() == label]
    return [(float(x) / MINUTE, round(float(y))) for c in found for x, y in offsets(c)]


def test_a_bar_per_day_and_kind_stands_on_those_before_it() -> None:
    lost = {"gpu_fault": (10.0, 0, 5, 0, 0, 0, 1), "session_failed": (2.0, 3, 0, 0, 0, 0, 0), "odd": (1.0,) * 7}
    figure = lost_by_day(replace(EMPTY, lost=lost))
    axes = figure.axes[0]
    bars = [c for c in axes.containers if isinstance(c, BarContainer)]
    assert [[bar.get_height() for bar in kind] for kind in bars] == [list(hours) for hours in lost.values()]
    assert [bar.get_y() for bar in bars[1]] == list(lost["gpu_fault"])
    assert [bar.get_y() for bar in bars[2]] == [12, 3, 5, 0, 0, 0, 1]
    assert [t.get_text() for t in figure.legends[0].get_texts()] == ["GPU faults 16", "failed runs 5.0", "odd 7.0"]
    assert [t.get_text() for t in axes.get_xticklabels()][::6] == ["Mon 23", "Sun 29"]
    assert axes.get_ylabel() == "GPU-hours"
    assert "2026-W48" in figure.get_suptitle()


def test_kinds_keep_colours_that_differ() -> None:
    assert len({*COLOURS.values(), GREY}) == len(COLOURS) + 1
    kinds: tuple[Kind, ...] = ("gpu_fault", "session_failed", "checkpoint_stall", "session_hung", "session_slow")
    assert set(kinds) == set(COLOURS)


def test_a_dot_per_chain_and_an_open_mark_where_it_had_not_regained() -> None:
    figure = time_to_regained(
        with_chains(
            chain("manual", 200),
            chain("automated", 30),
            chain("automated", 50),
            chain("automated", 90, regained=False),
            chain("open", 500, regained=False),
            chain("none", 5, regained=False),
        )
    )
    assert sorted(dots(figure, "regained")) == [(30, 0), (50, 0), (200, 1)]
    assert sorted(dots(figure, "no checkpoint until then")) == [(90, 0), (500, 2)]
    assert sorted(dots(figure, "median")) == [(50, 0), (200, 1)]
    names = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    assert names == ["automated (3)", "manual (1)", "open (1)"]
    assert "since the run stopped" in figure.axes[0].get_xlabel()


def test_equal_times_do_not_hide_one_another() -> None:
    figure = time_to_regained(with_chains(*(chain("automated", 30) for _ in range(4))))
    (marks,) = (c for c in figure.axes[0].collections if c.get_label() == "regained")
    assert len({y for _, y in offsets(marks)}) == 4


@pytest.mark.parametrize("minutes", [0, 0.1, 1, 30, 60 * 24 * 30])
def test_every_time_lies_on_the_axis_with_a_labelled_one(minutes: float) -> None:
    figure = time_to_regained(with_chains(chain("automated", minutes)))
    axes = figure.axes[0]
    low, high = axes.get_xlim()
    ((shown, _),) = dots(figure, "regained")
    assert low <= shown * MINUTE <= high
    assert any(low <= tick <= high for tick in axes.get_xticks())


def test_an_empty_week_says_so_and_both_are_pictures() -> None:
    assert [t.get_text() for t in lost_by_day(EMPTY).axes[0].texts] == ["nothing was lost"]
    assert [t.get_text() for t in time_to_regained(EMPTY).axes[0].texts] == ["no run stopped"]
    made = charts(EMPTY)
    assert [name for name, _, _ in made] == ["xidbot-2026-W48-lost.png", "xidbot-2026-W48-regained.png"]
    assert all(body.startswith(b"\x89PNG") for _, _, body in made)


def test_matplotlib_is_loaded_by_the_charts_alone_and_pyplot_never() -> None:
    code = (
        "import sys, bot.digest_post, commands.digest; print('matplotlib' in sys.modules)\n"
        "import bot.charts; print('matplotlib.pyplot' in sys.modules)"
    )
    run = subprocess.run(
        [sys.executable, "-c", code], cwd=Path(__file__).parents[2], capture_output=True, text=True, check=True
    )
    assert run.stdout.split() == ["False", "False"]
