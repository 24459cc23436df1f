"""The weekly digest as a message: first what to do, then the figures."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta

from bot.digest import DAY, LOOK_BACK, Digest
from bot.digest_storage import StorageWeek
from bot.naming import some
from bot.outcomes import Chain, Class, Difference, Figures, Interval
from bot.save_table import seconds
from templates import duration, node_list, render
from templates.blocks import Card

KIND_WORDS = {
    "gpu_fault": "GPU faults",
    "precursor": "warnings",
    "checkpoint_stall": "checkpoint stalls",
    "session_failed": "failed runs",
    "session_hung": "hung runs",
    "session_slow": "slow runs",
    "blind": "blind spots",
    "storm": "storms",
}
SHOWN = ("automated", "assisted", "manual")  # also without a chain: nobody should have to guess that there was none
DEAR = 0.5  # share of the lost hours from which on one cause is the week's
REMEDIES = {
    "checkpoint_stall": "Look at the storage before the nodes",
    "session_failed": "Read the logs of the runs that failed without a named node",
    "session_hung": "Take stacks of the runs that hang",
}


def tag_of_week(week: str) -> str:
    return f"digest-{week}"


def digest_card(digest: Digest, late: bool = False) -> Card:
    text = render(
        "digest.md.j2",
        d=digest,
        late=late,
        partly=digest.began is not None and digest.week.start < digest.began < digest.week.end,
        dates=_dates(digest),
        advice=" ".join(advice(digest)),
        total=hours(digest.gpu_hours_lost),
        lost=[(words(kind), hours(sum(days))) for kind, days in digest.lost.items()],
        before=[hours(spent) for spent in digest.lost_before],
        incidents=[(words(kind), count) for kind, count in digest.kinds.items()],
        table=class_table(digest.classes),
        comparison=comparison(digest),
        holders=_holders(digest.holds.by),
        storage=storage_line(digest.storage),
    )
    *paragraphs, footer = text
    return Card(f"{tag_of_week(digest.week.name)}.main", tuple(paragraphs), footer=footer.removeprefix("footer: "))


def _dates(digest: Digest) -> str:
    monday = digest.week.monday
    return f"{monday:%d %b} – {monday + timedelta(days=6):%d %b}"


def _holders(by: Mapping[str, int]) -> str:
    """People without their names: a list of mentions would call them all."""
    ours = by.get("xidbot", 0)
    counts = {"xidbot": ours, "people": sum(by.values()) - ours}
    return ", ".join(f"{who} {count}" for who, count in counts.items() if count)


# -- what to do -----------------------------------------------------------------------------------


def advice(digest: Digest) -> tuple[str, str]:
    """Two sentences: the first rules that have something to say."""
    if digest.began is None or digest.began >= digest.week.end:
        return "Nothing is known of this week.", "The log begins after it."
    said = [sentence for sentence in (rule(digest) for rule in RULES) if sentence]
    if not said:
        return "Nothing to do.", _calm(digest)
    return said[0], said[1] if len(said) > 1 else "Nothing else waits for you."


def _repair(digest: Digest) -> str:
    """The same node again and again is not cured by resets (gpud: a second reboot for one Xid means inspection)."""
    bad = [r for r in digest.repeats if not r.back] or digest.repeats
    if not bad:
        return ""
    nodes, each = node_list(r.node for r in bad), "up to " if len(bad) > 1 else ""
    faults = f"{each}{max(r.faults for r in bad)} faults in {LOOK_BACK // DAY} days"
    return (
        f"Was {nodes} really mended? Given back after {faults}."
        if bad[0].back
        else f"Send {nodes} to repair: {faults}."
    )


def _dear(digest: Digest) -> str:
    kind, days = next(iter(digest.lost.items()), ("", ()))
    if kind not in REMEDIES or sum(days) <= DEAR * digest.gpu_hours_lost:
        return ""
    cost = f"{hours(sum(days))} of {hours(digest.gpu_hours_lost)} lost GPU-hours"
    return f"{REMEDIES[kind]}: {KIND_WORDS[kind]} cost {cost}."


def _overdue(digest: Digest) -> str:
    nodes = set(digest.holds.overdue) - {r.node for r in digest.repeats}
    return f"Test or readmit {node_list(nodes)}: review overdue." if nodes else ""


def _away(digest: Digest) -> str:
    names, more = ", ".join(digest.away[:3]), " and others" if len(digest.away) > 3 else ""
    return f"Bring back {names}{more}: no new checkpoint yet." if names else ""


RULES: tuple[Callable[[Digest], str], ...] = (_repair, _dear, _overdue, _away)


def _calm(digest: Digest) -> str:
    count = sum(digest.kinds.values())
    return f"Nothing is left of the week's {count} incidents." if count else "It was a quiet week."


# -- who recovered --------------------------------------------------------------------------------


def class_table(classes: Mapping[Class, Figures]) -> str:
    """Aligned text: Slack's older blocks have no table."""
    shown = [(name, f) for name, f in classes.items() if f.chains or name in SHOWN]
    rows = [
        ("recovery", "chains", "tries", "regained", "survived", "median", "again"),
        *(_row(*item) for item in shown),
    ]
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return "\n".join(_line(row, widths) for row in rows)


def _line(row: Sequence[str], widths: Sequence[int]) -> str:
    cells = [cell.rjust(w) if cell.isdecimal() else cell.ljust(w) for cell, w in zip(row, widths, strict=True)]
    return "  ".join(cells).rstrip()


def _row(name: Class, f: Figures) -> tuple[str, ...]:
    counts = (name, str(f.chains), str(f.attempts))
    if name == "none":
        return (*counts, "never interrupted", "", "", "")
    if name == "open":
        return (*counts, f"{f.regained} so far", "", "", "")
    median = duration(f.median) if f.median is not None else "–"
    return (*counts, _share(f.regained, f.ci), _share(f.survived, f.survived_ci), median, str(f.recurred))


def _share(hits: int, ci: Interval | None) -> str:
    return f"{hits} ({percent(ci)})" if ci else "–"


def percent(ci: Interval) -> str:
    return f"{ci[0] * 100:.0f}–{ci[1] * 100:.0f} %"


def comparison(digest: Digest) -> str:
    """People against the machine over all weeks, and whether that can be said at all."""
    auto, hand = (_of(digest, name) for name in ("automated", "manual"))
    told = digest.comparison
    if told is None:
        missing = "automated" if not auto else "manual"
        return f"Automated against manual: cannot tell yet, no {missing} chain so far."
    shares = f"{_regained(auto)} against {_regained(hand)} regained"
    points = f"{_signed(told.points)} points ({_signed(told.low)} to {_signed(told.high)})"
    verdict = _verdict(told) + _unlike(auto, hand)
    return f"Automated against manual, all weeks so far: {shares}, {points}: {verdict}"


def _of(digest: Digest, name: Class) -> list[Chain]:
    return [chain for chain in digest.to_date if chain.chain_class == name]


def _regained(chains: list[Chain]) -> str:
    return f"{sum(c.regained for c in chains)} of {len(chains)}"


def _verdict(told: Difference) -> str:
    if told.tells:
        return f"{'automated' if told.points > 0 else 'manual'} chains regained more often."
    return f"cannot tell yet, {_about(told.more)} more cases." if told.more else "cannot tell yet, they look the same."


def _signed(share: float) -> str:
    return f"{share * 100:+.0f}".replace("-", "−")


def _about(cases: int) -> str:
    """As exact as such an estimate is."""
    if cases > 1000:
        return "more than 1,000"
    step = 1 if cases < 10 else 10 if cases < 200 else 100
    return f"about {-(-cases // step) * step}"


def _unlike(auto: list[Chain], hand: list[Chain]) -> str:
    """Who recovers what is not drawn by lot; said where it shows."""
    unnamed = [sum(c.kind == "session_failed" for c in chains) for chains in (auto, hand)]
    if unnamed[0] * len(hand) == unnamed[1] * len(auto):
        return ""
    return (
        f" They are not alike: no node was named in {unnamed[0]} of {len(auto)} automated"
        f" and {unnamed[1]} of {len(hand)} manual ones."
    )


# -- storage --------------------------------------------------------------------------------------

VERDICT_WORDS = {
    "client_slots": "RPC slots",
    "server": "server",
    "node_path": "path of one node",
    "link": "link",
    "metadata": "metadata",
    "unknown": "cannot tell",
}
MOST_NAMED = 3


def storage_line(s: StorageWeek) -> str:
    """`412 saves, median 2:10 min, p90 4:05 min; stalls: server 1, up to 12 idle GPU-hours; links 3 % used in them.`"""
    if not s.saves and not s.stalls:
        return "not measured."
    parts = [_saves(s), _stalls(s)]
    if s.links:
        low, high = min(s.links), max(s.links)
        span = f"{low * 100:.0f}" if round(low, 2) == round(high, 2) else f"{low * 100:.0f}–{high * 100:.0f}"
        parts.append(f"links {span} % used in them")
    text = f"{'; '.join(parts)}."
    names = [run.name for run in s.runs if not run.saves]
    return f"{text} Saves not measured: {some(names, MOST_NAMED)}." if names and s.saves else text


def _saves(s: StorageWeek) -> str:
    if not s.saves:
        return "saves not measured"
    if s.median is None or s.p90 is None:
        return f"{s.saves} saves, durations not measured"
    return f"{s.saves} saves, median {seconds(s.median)}, p90 {seconds(s.p90)}"


def _stalls(s: StorageWeek) -> str:
    if not s.stalls:
        return "no stall"
    told = ", ".join(f"{VERDICT_WORDS.get(verdict, verdict)} {count}" for verdict, count in s.stalls.items())
    lost = f", up to {hours(s.gpu_hours)} idle GPU-hours" if s.gpu_hours else ""
    return f"stalls: {told}{lost}"


# -- words ----------------------------------------------------------------------------------------


def hours(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 or value == 0 else f"{value:.1f}"


def words(kind: str) -> str:
    return KIND_WORDS.get(kind, kind)
