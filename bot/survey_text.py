"""The signals as lines and as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

from bot.naming import some
from bot.policy import Signal
from bot.survey import Survey, Told, Why

SHOWN = 4  # nodes named in a line


def _weight(signal: Signal) -> str:
    return "context" if signal.evidence.kind == "context" else "hard" if signal.hard else "soft"


def catalogue(signals: Iterable[Signal]) -> str:
    rows = [(s.id, s.category, _weight(s), s.title) for s in signals]
    return "\n".join(_aligned([("signal", "category", "evidence", "what"), *rows]))


def text(found: Survey) -> str:
    return "\n".join([*_head(found), "", *_body(found)])


def _head(found: Survey) -> Iterator[str]:
    yield f"{found.url}: {len(found.nodes)} nodes, {len(found.signals)} signals, policy {found.policy}"
    for source in found.problems:
        yield f"{source.name} cannot be read: {source.problem}"
    if not found.scheduled:
        yield "no site file: every host is taken for a node, and nobody knows who runs where"
    if found.strangers:
        yield f"hosts that map to no node: {some(found.strangers, SHOWN)}; see prometheus.node_labels and node_pattern"


def _body(found: Survey) -> Iterator[str]:
    head = ("signal", "category", "evidence", "good", "bad", "unknown", "what")
    rows = [
        (
            t.signal.id,
            t.signal.category,
            _weight(t.signal),
            str(t.good),
            str(len(t.bad)),
            str(t.unknown),
            t.signal.title,
        )
        for t in found.signals
    ]
    first, *lines = _aligned([head, *rows])
    yield first
    for line, told in zip(lines, found.signals, strict=True):
        yield line
        yield from (f"    {below}" for below in _below(told, len(found.nodes)))


def _below(told: Told, nodes: int) -> Iterator[str]:
    for reading in told.bad[:SHOWN]:
        yield f"bad: {reading.node}: {reading.text}"
    if len(told.bad) > SHOWN:
        yield f"bad: and {len(told.bad) - SHOWN} more"
    for why in told.why:
        reason = why.why or "nobody knows why"
        everywhere = len(why.nodes) == nodes
        yield f"{why.state} on all: {reason}" if everywhere else f"{why.state} on {some(why.nodes, SHOWN)}: {reason}"


def _aligned(rows: list[tuple[str, ...]]) -> list[str]:
    widths = [max(len(cell) for cell in column) for column in zip(*rows, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


# -- for others --------------------------------------------------------------------------------------------------------


def catalogue_json(signals: Iterable[Signal]) -> str:
    return json.dumps({"signals": [_entry(signal) for signal in signals]}, indent=2, ensure_ascii=False)


def as_json(found: Survey) -> str:
    body = {
        "prometheus": found.url,
        "policy": found.policy,
        "at": found.at,
        "nodes": len(found.nodes),
        "strangers": found.strangers,
        "problems": {source.name: source.problem for source in found.problems},
        "signals": [_entry(told.signal) | _state(told) for told in found.signals],
    }
    return json.dumps(body, indent=2, ensure_ascii=False)


def _entry(signal: Signal) -> dict[str, Any]:
    return {
        "id": signal.id,
        "category": signal.category,
        "evidence": _weight(signal),
        "provenance": signal.provenance,
        "title": signal.title,
    }


def _state(told: Told) -> dict[str, Any]:
    bad = [{"node": r.node, "value": r.value, "evidence": round(r.evidence, 3), "text": r.text} for r in told.bad]
    return {"good": told.good, "bad": len(told.bad), "unknown": told.unknown, "bad_nodes": bad,
            "why": [_why(why) for why in told.why]}  # fmt: skip


def _why(why: Why) -> dict[str, Any]:
    return {"state": why.state, "why": why.why, "count": len(why.nodes), "nodes": why.nodes}
