"""A backtest's outcome in words."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

from bot.backtest_run import Outcome


def text(outcome: Outcome) -> str:
    return "\n".join(_lines(outcome))


def _lines(outcome: Outcome) -> Iterator[str]:
    report, figures = outcome.report, outcome.report.as_json()
    yield f"{report.days:.1f} days, {len(report.alarms)} alarms ({figures['messages_per_day']} messages a day)"
    if report.found:
        chance = f"{figures['chance_detected']} by chance"
        yield f"{len(report.detected)} of {len(report.found)} failures detected, {figures['early']} early ({chance})"
    yield f"{len(report.false)} false alarms ({figures['false_per_day']} a day)"
    yield f"{figures['alarmed_node_hours']} node hours under alarm; {report.peak_held} nodes held at once at most"
    for guard, count in report.stopped.items():
        yield f"  guard {guard} would have stopped {count} actions"
    for found in report.found:
        label, told = found.label, _told(found.lead_s, found.early)
        code = f"Xid {label.xid}" if label.xid else "no code"
        yield f"  {_when(label.start)}  {label.node:<12} {label.category:<10} {code:<8} {told}"
    for alarm in report.false:
        what = f"{alarm.kind}, score {alarm.score:.2f}: {alarm.why}"
        yield f"  {_when(alarm.start)}  {alarm.node:<12} {alarm.category:<10} false    {what}"


def _told(lead: int | None, early: bool) -> str:
    if lead is None:
        return "NOT DETECTED"
    when = f"{lead / 60:.0f} min before" if lead > 0 else f"{-lead / 60:.0f} min after"
    return f"detected {when}{', early' if early else ''}"


def _when(at: int) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M")


def difference(ours: Outcome, theirs: Outcome) -> str:
    """Which figures the other policy would change, and which alarms."""
    before, after = ours.report.as_json(), theirs.report.as_json()
    changed = [f"  {name}: {before[name]} → {after[name]}" for name in before if before[name] != after[name]]
    known = {(alarm.node, alarm.kind, alarm.start) for alarm in ours.alarms}
    other = {(alarm.node, alarm.kind, alarm.start) for alarm in theirs.alarms}
    moved = [f"  only now: {_alarm(*key)}" for key in sorted(known - other, key=str)]
    moved += [f"  only then: {_alarm(*key)}" for key in sorted(other - known, key=str)]
    return "\n".join(["with the other policy:", *(changed or ["  no figure changes"]), *moved])


def _alarm(node: str, kind: str, start: int) -> str:
    return f"{_when(start)} {kind} {node}"
