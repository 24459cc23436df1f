"""The digest's two pictures. Figure objects only, never pyplot: that keeps a global list and is not thread-safe.

Importing this module loads matplotlib, so it is imported where a chart is drawn.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from io import BytesIO

from matplotlib.axes import Axes
from matplotlib.collections import PathCollection
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from bot.compose_digest import hours, words
from bot.digest import Digest
from bot.outcomes import CLASSES, Chain, Class
from templates import duration

# Okabe and Ito's palette: told apart with any colour vision. A kind keeps its colour from week to week.
VERMILION, BLUE, ORANGE, SKY, PURPLE, GREY = "#D55E00", "#0072B2", "#E69F00", "#56B4E9", "#CC79A7", "#999999"
COLOURS = {
    "gpu_fault": VERMILION,
    "session_failed": BLUE,
    "checkpoint_stall": ORANGE,
    "session_hung": SKY,
    "session_slow": PURPLE,
}
INK, PALE, FAINT = "#1D1C1D", "#DDDDDD", "#666666"
SIZE, DPI, FONT = (7.2, 4.2), 150, 13  # Slack shows a picture about 360 points wide: half of this size
TIMES = (60, 180, 600, 1800, 7200, 21_600, 86_400, 259_200, 604_800)  # s; labels need a factor of three,
FINE = (120, 300, 900, 1200, 2700, 3600, 10_800, 14_400, 43_200, 172_800, 432_000)  # or less where few are shown
LABELS = 5
SHORTEST = 30  # s; the time axis is logarithmic
DOT = 80  # points²
ROOM = 0.6  # of a class's row for its chains, side by side, so that equal times do not hide one another


def charts(digest: Digest) -> list[tuple[str, str, bytes]]:
    """(file name, title, PNG) of both."""
    name = digest.week.name
    return [
        (f"xidbot-{name}-lost.png", f"GPU-hours lost, week {name}", png(lost_by_day(digest))),
        (f"xidbot-{name}-regained.png", f"Time to regained, week {name}", png(time_to_regained(digest))),
    ]


def png(figure: Figure) -> bytes:
    target = BytesIO()
    figure.savefig(target, format="png", dpi=DPI)
    return target.getvalue()


def frame(title: str) -> tuple[Figure, Axes]:
    figure = Figure(figsize=SIZE, layout="constrained")
    figure.suptitle(title, x=0.01, ha="left", fontsize=FONT + 2, color=INK, fontweight="bold")
    axes = figure.add_subplot()
    axes.tick_params(labelsize=FONT, colors=INK, length=0)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.spines["bottom"].set_color(PALE)
    axes.set_axisbelow(True)
    return figure, axes


def show_legend(figure: Figure, axes: Axes) -> None:
    """Below the plot: beside it the plot would be too narrow to read in Slack."""
    handles, labels = axes.get_legend_handles_labels()
    legend = figure.legend(handles, labels, loc="outside lower left", ncols=3, fontsize=FONT - 1, frameon=False)
    for handle in legend.legend_handles:
        if isinstance(handle, PathCollection):
            handle.set_sizes([DOT])


def nothing(axes: Axes, text: str) -> None:
    axes.set_yticks([])
    axes.text(0.5, 0.5, text, transform=axes.transAxes, ha="center", va="center", fontsize=FONT + 1, color=FAINT)


# -- GPU-hours lost per day -----------------------------------------------------------------------


def lost_by_day(digest: Digest) -> Figure:
    figure, axes = frame(f"GPU-hours lost per day, week {digest.week.name}")
    below = [0.0] * 7
    for kind, spent in digest.lost.items():
        label = f"{words(kind)} {hours(sum(spent))}"
        axes.bar(range(7), spent, bottom=below, width=0.7, label=label, color=COLOURS.get(kind, GREY))
        below = [low + more for low, more in zip(below, spent, strict=True)]
    dates = [digest.week.monday + timedelta(days=day) for day in range(7)]
    axes.set_xticks(range(7), [f"{day:%a} {day.day}" for day in dates])
    axes.set_xlim(-0.6, 6.6)
    axes.set_ylim(0, 1.08 * max(below) or 1)
    if not digest.lost:
        nothing(axes, "nothing was lost")
        return figure
    axes.set_ylabel("GPU-hours", fontsize=FONT, color=INK)
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:,g}")
    axes.grid(axis="y", color=PALE)
    show_legend(figure, axes)
    return figure


# -- time to regained -----------------------------------------------------------------------------


def time_to_regained(digest: Digest) -> Figure:
    """A row per class: a dot for each chain that regained, an open triangle for one that had not until then."""
    figure, axes = frame(f"From stop to a new checkpoint, week {digest.week.name}")
    counted = [c for c in digest.chains if c.chain_class != "none"]
    rows = [name for name in CLASSES if any(c.chain_class == name for c in counted)]
    if not rows:
        axes.set_xticks([])
        nothing(axes, "no run stopped")
        return figure
    _dots(axes, counted, rows)
    medians = [(row, median) for row, name in enumerate(rows) if (median := digest.classes[name].median) is not None]
    at, row_of = [max(s, SHORTEST) for _, s in medians], [row for row, _ in medians]
    axes.scatter(at, row_of, s=12 * DOT, c=INK, marker="|", linewidths=2, label="median", zorder=1)
    axes.set_xlabel("since the run stopped (logarithmic)", fontsize=FONT, color=INK)
    _rows(axes, counted, rows)
    _times(axes, [c.after for c in counted])
    show_legend(figure, axes)
    return figure


def _dots(axes: Axes, counted: Sequence[Chain], rows: Sequence[Class]) -> None:
    places: dict[bool, list[tuple[int, float]]] = {True: [], False: []}
    for row, name in enumerate(rows):
        mine = sorted((c for c in counted if c.chain_class == name), key=lambda c: c.after)
        for i, chain in enumerate(mine):
            places[chain.regained].append((max(chain.after, SHORTEST), row + ROOM * ((i + 0.5) / len(mine) - 0.5)))
    for regained, (marker, face, edge, label) in {
        True: ("o", BLUE, BLUE, "regained"),
        False: (">", "white", VERMILION, "no checkpoint until then"),
    }.items():
        x, y = [at for at, _ in places[regained]], [height for _, height in places[regained]]
        if x:
            axes.scatter(x, y, s=DOT, c=face, marker=marker, linewidths=2, edgecolors=edge, label=label)


def _rows(axes: Axes, counted: Sequence[Chain], rows: Sequence[Class]) -> None:
    names = [f"{name} ({sum(c.chain_class == name for c in counted)})" for name in rows]
    axes.set_yticks(range(len(rows)), names)
    axes.set_ylim(len(rows) - 0.5, -0.5)
    for border in range(len(rows) - 1):
        axes.axhline(border + 0.5, color=PALE, linewidth=0.8)


def _times(axes: Axes, seconds: Sequence[int]) -> None:
    """Logarithmic, because minutes and days are on it; it begins and ends beyond the marks."""
    low, high = max(min(seconds), SHORTEST), max(max(seconds), SHORTEST)
    first = max((t for t in TIMES if t <= low), default=SHORTEST)
    last = max(3 * first, min((t for t in TIMES if t >= high), default=high))
    fine, coarse = ([t for t in times if first <= t <= last] for times in (sorted((*TIMES, *FINE)), TIMES))
    shown = fine if len(fine) <= LABELS else coarse
    axes.set_xscale("log")
    axes.set_xlim(first / 1.3, last * 1.3)
    axes.set_xticks(shown, [duration(t) for t in shown])
    axes.xaxis.set_minor_locator(NullLocator())
    axes.grid(axis="x", color=PALE)
