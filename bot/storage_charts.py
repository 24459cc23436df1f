"""How long a run's saves took, and what a mount did in the hour of a stall. Figure objects only, as in bot.charts."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from zoneinfo import ZoneInfo

from matplotlib.axes import Axes
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
from matplotlib.figure import Figure

from bot.charts import BLUE, DOT, DPI, FAINT, FONT, INK, ORANGE, PALE, SIZE, VERMILION, frame, nothing, png, show_legend
from bot.model import KnownSave, SaveHistory, Session, Stall, StoragePoint
from bot.save_table import is_whole, seconds
from bot.saves import durations, quantile

UNITS = (("GB/s", 1e9), ("MB/s", 1e6), ("kB/s", 1e3))
GAP = 150  # s without a point: the line is broken there, because nothing is known
MINUTE = 60


# -- saves -----------------------------------------------------------------------------------------------------------


def saves_chart(session: Session, history: SaveHistory, tz: str) -> bytes:
    """PNG."""
    return png(durations_over_time(session, history, tz))


def durations_over_time(session: Session, history: SaveHistory, tz: str) -> Figure:
    """A dot per save whose duration is known; open where nobody told that it is whole."""
    figure, axes = frame(f"How long saves took, {session.name}")
    timed = [s for s in history.saves if s.seconds is not None]
    if not timed:
        axes.set_xticks([])
        nothing(axes, "no save with a start and an end is known")
        return figure
    longest = max(durations(timed))
    unit, name = (60, "minutes") if longest >= 180 else (1, "seconds")
    for label, mine, face, edge in _groups(timed):
        if mine:
            x, y = [_local(s.at, tz) for s in mine], [(s.seconds or 0) / unit for s in mine]
            axes.scatter(x, y, s=DOT / 2, c=face, edgecolors=edge, linewidths=1.5, label=label, zorder=2)  # type: ignore[arg-type]
    for share, label, style in ((0.5, "median", "-"), (0.9, "p90", "--")):
        level = quantile(durations(timed), share) or 0
        axes.axhline(
            level / unit, color=INK, linestyle=style, linewidth=1.2, label=f"{label} {seconds(level)}", zorder=1
        )
    axes.set_ylim(0, 1.08 * longest / unit or 1)
    axes.set_ylabel(name, fontsize=FONT, color=INK)
    axes.grid(axis="y", color=PALE)
    _time_axis(axes, tz)
    show_legend(figure, axes)
    return figure


def _groups(timed: Sequence[KnownSave]) -> list[tuple[str, list[KnownSave], str, str]]:
    """(label, saves, face, edge)."""
    calm = [s for s in timed if not s.slow]
    return [
        ("whole", [s for s in calm if is_whole(s)], BLUE, BLUE),
        ("not known whole", [s for s in calm if not is_whole(s)], "white", BLUE),
        ("stalled", [s for s in timed if s.slow], VERMILION, VERMILION),
    ]


# -- the hour of a stall -----------------------------------------------------------------------------------------------


def stall_chart(stall: Stall, tz: str) -> bytes:
    """PNG."""
    return png(last_hour(stall, tz))


def last_hour(stall: Stall, tz: str) -> Figure:
    """Three panels over the same time: throughput, queue share, requests in flight; the stall is shaded."""
    figure = Figure(figsize=(SIZE[0], 1.5 * SIZE[1]), layout="constrained", dpi=DPI)
    figure.suptitle(
        f"{stall.export} (shaded: the stall)", x=0.01, ha="left", fontsize=FONT + 1, color=INK, fontweight="bold"
    )
    panels = figure.subplots(3, 1, sharex=True)
    unit, name = _unit(stall.trace)
    told = (
        (f"throughput, {name}", [p.rate / unit if p.rate is not None else None for p in stall.trace], BLUE, None),
        (
            "queue share, %",
            [100 * p.queue_share if p.queue_share is not None else None for p in stall.trace],
            ORANGE,
            100,
        ),
        ("in flight a node", [p.in_flight for p in stall.trace], VERMILION, None),
    )
    for axes, (title, values, colour, top) in zip(panels, told, strict=True):
        _panel(axes, title, stall, values, colour, top, tz)
    slots = stall.measures.slots
    if slots and any(p.in_flight is not None for p in stall.trace):
        panels[2].axhline(slots, color=INK, linestyle="--", linewidth=1.2)
        panels[2].set_ylim(0, 1.15 * max(slots, *(p.in_flight or 0 for p in stall.trace)))
        panels[2].annotate(
            f"{slots:,.0f} slots", (0.01, slots), xycoords=("axes fraction", "data"), va="bottom", color=INK
        )
    _time_axis(panels[2], tz)
    return figure


def _panel(
    axes: Axes, title: str, stall: Stall, values: Sequence[float | None], colour: str, top: float | None, tz: str
) -> None:
    axes.set_title(title, loc="left", fontsize=FONT, color=INK)
    axes.tick_params(labelsize=FONT - 2, colors=INK, length=0)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.spines["bottom"].set_color(PALE)
    if all(v is None for v in values):
        axes.set_yticks([])
        axes.text(
            0.5, 0.5, "not measured", transform=axes.transAxes, ha="center", va="center", fontsize=FONT, color=FAINT
        )
        return
    x, y = _line([p.at for p in stall.trace], values)
    axes.plot([_local(at, tz) for at in x], y, color=colour, linewidth=2)  # type: ignore[arg-type]
    end = stall.ended if stall.ended is not None else stall.trace[-1].at + MINUTE
    axes.axvspan(_local(max(stall.onset, stall.trace[0].at), tz), _local(end, tz), color=PALE, zorder=0)  # type: ignore[arg-type]
    axes.set_ylim(0, top or 1.1 * max(v for v in values if v is not None) or 1)
    axes.grid(axis="y", color=PALE)


def _line(times: Sequence[int], values: Sequence[float | None]) -> tuple[list[int], list[float]]:
    """A point in the middle of its minute; NaN where there is none for a while."""
    x: list[int] = []
    y: list[float] = []
    for at, value in zip(times, values, strict=True):
        if x and at + MINUTE // 2 - x[-1] > GAP:
            x.append(at)
            y.append(float("nan"))
        x.append(at + MINUTE // 2)
        y.append(float("nan") if value is None else value)
    return x, y


def _unit(trace: Sequence[StoragePoint]) -> tuple[float, str]:
    top = max((p.rate for p in trace if p.rate is not None), default=0)
    return next(((size, name) for name, size in UNITS if top >= size), (1.0, "B/s"))


# -- time --------------------------------------------------------------------------------------------------------------


def _local(at: int, tz: str) -> datetime:
    return datetime.fromtimestamp(at, ZoneInfo(tz))


def _time_axis(axes: Axes, tz: str) -> None:
    zone = ZoneInfo(tz)
    locator = AutoDateLocator(tz=zone, minticks=3, maxticks=7)  # type: ignore[no-untyped-call]
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(ConciseDateFormatter(locator, tz=zone))  # type: ignore[no-untyped-call]
    axes.xaxis.get_offset_text().set_fontsize(FONT - 2)
