"""Stopping all writes, allowing them again, and what would be allowed now."""

from __future__ import annotations

import contextlib
import time

from bot.errors import SourceError
from bot.gate.answer import ALREADY, DONE, FAILED, End
from bot.gate.call import Call, paused
from bot.gate.nodes import held_by_us, held_limit


def pause(call: Call) -> tuple[int, dict[str, object]]:
    was = paused(call.settings)
    if was is not None:
        raise End(ALREADY, f"paused before: {was}", paused=True)
    why = " ".join("".join(c if c.isprintable() else " " for c in call.why).split())[:200] or "no reason given"
    line = f"{why} ({call.by}, {time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime())})"
    call.settings.pause_file.write_text(line + "\n", encoding="utf-8")
    call.settings.pause_file.chmod(0o644)
    with contextlib.suppress(OSError):  # it is paused; a full disk must not make that look like a failure
        call.say("pause", why=why)
    return DONE, {"detail": f"paused: {line}", "paused": True}


def resume(call: Call) -> tuple[int, dict[str, object]]:
    if paused(call.settings) is None:
        raise End(ALREADY, "it was not paused", paused=False)
    call.settings.pause_file.unlink(missing_ok=True)
    call.say("resume", why=call.why[:200])
    return DONE, {"detail": "writes are allowed again", "paused": False}


def status(call: Call) -> tuple[int, dict[str, object]]:
    """What the gate would allow now. Slurm unreadable: exit 5 with all that does not need Slurm."""
    caps = call.settings.caps
    used = call.log.writes(time.time() - caps.window)
    why = paused(call.settings)
    body: dict[str, object] = {
        "paused": why is not None,
        "why": why or "",
        "writes": {
            "used": len(used),
            "cap": caps.writes,
            "left": max(0, caps.writes - len(used)),
            "window": caps.window,
        },
    }
    try:
        nodes = call.slurm.nodes()[0]
    except (End, SourceError) as error:
        return FAILED, {**body, "reason": str(error)}
    held, limit = held_by_us(nodes), held_limit(call.settings, nodes)
    room = {"cap": limit, "left": max(0, limit - len(held)), "nodes": held}
    return DONE, {**body, "held": room, "detail": f"{len(held)} of {limit} nodes held"}
