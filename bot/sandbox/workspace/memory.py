"""The workspace across restarts: every change is a line in a file, which each start writes anew with what still counts.

Without it a restarted bot would edit messages that nobody can see any more.
"""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from datetime import tzinfo
from pathlib import Path

from bot.errors import ConfigError
from bot.sandbox.workspace.files import File
from bot.sandbox.workspace.state import Message, Workspace

ROOTS = 500  # newest messages of the channel that are kept, with their threads


def remembered(path: Path, tz: tzinfo | None = None) -> Workspace:
    """A workspace that goes on where the one before ended. Raises ConfigError for a file that cannot be written."""
    messages, files = _read(path)
    kept = _newest(messages)
    used = {name for message in kept for name in message.files}
    try:
        _write(path, [*(file for file in files.values() if file.id in used), *kept])
    except OSError as error:
        raise ConfigError(f"{path}: the local workspace cannot be kept there: {error.strerror}") from error
    workspace = Workspace(tz=tz, keep=lambda thing: _append(path, thing))
    workspace.restore(kept, files.values())
    return workspace


def _read(path: Path) -> tuple[dict[str, Message], dict[str, File]]:
    """The newest of each. What was cut off when the process died is passed over."""
    messages: dict[str, Message] = {}
    files: dict[str, File] = {}
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
        thing = _thing(line)
        if isinstance(thing, Message):
            messages[thing.ts] = thing
        elif isinstance(thing, File):
            files[thing.id] = thing
    return messages, files


def _thing(line: str) -> Message | File | None:
    try:
        told = json.loads(line)
        if "data" in told:
            return File(**{**told, "data": base64.b64decode(told["data"])})
        return Message(**{**told, "blocks": tuple(told["blocks"]), "files": tuple(told["files"])})
    except (ValueError, TypeError, KeyError):
        return None


def _newest(messages: dict[str, Message]) -> list[Message]:
    living = sorted((m for m in messages.values() if not m.deleted), key=lambda message: message.at)
    roots = {message.ts for message in [m for m in living if not m.thread][-ROOTS:]}
    return [message for message in living if (message.thread or message.ts) in roots]


def _write(path: Path, things: Iterable[Message | File]) -> None:
    fresh = path.with_name(f"{path.name}.new")
    fresh.touch(mode=0o600)
    fresh.write_text("".join(_lines(things)), encoding="utf-8")
    os.replace(fresh, path)


def _append(path: Path, thing: Message | File) -> None:
    with path.open("a", encoding="utf-8") as out:
        out.writelines(_lines([thing]))


def _lines(things: Iterable[Message | File]) -> Iterator[str]:
    for thing in things:
        told = asdict(thing)
        if isinstance(thing, File):
            told["data"] = base64.b64encode(thing.data or b"").decode()
        yield json.dumps(told) + "\n"
