"""Writes the tables of docs/ from the code, so that they cannot drift: `python docs/generate.py [--check]`."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path

import playbooks
from bot import policy
from bot.config import Config
from bot.guards import GUARDS, OVERRIDABLE
from bot.plans import STEPS
from bot.signals.needs import metrics, teller
from bot.sources.kernel_log.events import TOLD_BY_THE_KERNEL
from commands import COMMANDS

HERE = Path(__file__).parent
NOTE = "<!-- Written by docs/generate.py; change the code instead. -->\n"


def table(*rows: tuple[str, ...]) -> str:
    head, *body = rows
    lines = [head, tuple("---" for _ in head), *body]
    return "\n".join(
        "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in row) + " |" for row in lines
    )


def commands() -> str:
    rows = [
        (f"`{c.slack} …`" if c.slack == "/xid" else f"`{c.slack}`", f"`{c.usage}`", c.role, c.help) for c in COMMANDS
    ]
    return "# Commands\n\nIn Slack, and as `xidbot WORD …` on the command line.\n\n" + table(
        ("in Slack", "usage", "role", "what it does"), *rows
    )


def numbers() -> str:
    shipped = (files("bot") / "policy.yaml", files("bot.storage") / "storage.yaml")
    text = "\n".join(file.read_text(encoding="utf-8") for file in shipped)
    return "# Numbers\n\nEach can be overridden under `policy:` in the site file.\n\n" + table(
        ("name", "shipped", "why"), *_numbers(text)
    )


def _numbers(text: str) -> Iterator[tuple[str, str, str]]:
    group = ""
    for line in text.splitlines():
        if found := re.match(r"^(\w+):$", line):
            group = found[1]
        elif found := re.match(r"^  (\w+): (\S+)\s*(?:# (.*))?$", line):
            yield f"`{group}.{found[1]}`", found[2], found[3] or "see above"


def signals() -> str:
    rows = [
        (
            f"`{s.id}`", s.category, *_weight(s), _time(s.persistence), ", ".join(s.not_during), s.provenance,
            _needs(s), s.title, s.why, s.source,
        )
        for s in policy.signals(None).values()
    ]  # fmt: skip
    return SIGNALS + table(
        ("id", "category", "evidence", "class", "strength", "persistence", "silent in", "provenance", "needs", "what",
         "why", "source"),
        *rows,
    )  # fmt: skip


SIGNALS = """# Signals

`xidbot signals` shows what each of them says now, and why it says nothing where it does not. Overridden by id under
`signals:` in the site file; another id there is a signal of your own (`xidbot config example`).

Evidence: *hard* condemns hardware by itself, *soft* is statistics, *context* only tells the phase a node is in.
Strength is the evidence once it is bad, and what it grows to; 0 is shown and weighs nothing; *until*: a warning of it
goes on to this value. A signal that lacks what it needs is unknown, which opens nothing.

"""


def _weight(s: policy.Signal) -> tuple[str, str, str]:
    """Evidence, class, strength."""
    if s.evidence.kind == "context":
        return "context", "context", ""
    grown = f" … {s.weight * s.evidence.full:.2f}" if s.evidence.full is not None else ""
    event = ", at once" if s.evidence.event else ""
    own = " and own past" if s.evidence.own_past else ""
    until = f", until < {s.evidence.until:g}" if s.evidence.until is not None else ""
    strength = f"{s.weight * s.evidence.strength:.2f}{grown}{event}{until}"
    return "hard" if s.hard else "soft", f"{s.evidence.kind}{own}", strength


def _time(seconds: int) -> str:
    return f"{seconds // 60} min" if seconds and seconds % 60 == 0 else f"{seconds} s" if seconds else ""


def _needs(s: policy.Signal) -> str:
    """Metrics, or who tells it otherwise."""
    names = ", ".join(f"`{name}`" for name in metrics(s.query))
    logged = " (the kernel log tells it too)" if names and s.id in TOLD_BY_THE_KERNEL else ""
    return f"{names}{logged}" or teller(s.id)


def guards() -> str:
    rows = [
        (name, (guard.__doc__ or "").strip().split("\n")[0], "yes" if name in OVERRIDABLE else "no")
        for name, guard in GUARDS
    ]
    books = [
        (f"`{b.id}`", b.title, " → ".join(f"{s.step} ({s.dead}/{s.degraded}/{s.running})" for s in b.steps), b.why)
        for b in playbooks.load(None, STEPS)
    ]
    return (
        "# Guards and playbooks\n\nAsked in this order when a plan is made and again before each write.\n\n"
        + table(("guard", "rule", "a person's approval overrides it"), *rows)
        + "\n\nModes are for a dead, degraded and running session; `site.write_mode` is the ceiling.\n\n"
        + table(("playbook", "title", "steps", "why"), *books)
    )


def site_file() -> str:
    rows = []
    for name, field in Config.model_fields.items():
        inner = getattr(field.annotation, "model_fields", None)
        keys = inner or {"": field}
        for key, part in keys.items():
            default = "required" if part.is_required() else repr(part.get_default(call_default_factory=True))
            rows.append((f"`{name}.{key}`" if key else f"`{name}`", default if len(default) < 80 else "…"))
    return "# Site file\n\n" + table(("key", "default"), *rows)


PAGES = {
    "commands.md": commands,
    "numbers.md": numbers,
    "signals.md": signals,
    "guards.md": guards,
    "site-file.md": site_file,
}


def main() -> int:
    stale = []
    for name, make in PAGES.items():
        path, text = HERE / name, NOTE + make() + "\n"
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            stale.append(name)
            if "--check" not in sys.argv:
                path.write_text(text, encoding="utf-8")
    print(f"stale: {', '.join(stale)}" if stale else "docs are what the code says")
    return 1 if stale and "--check" in sys.argv else 0


if __name__ == "__main__":
    sys.exit(main())
