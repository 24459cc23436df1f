"""How far a backtest has come, in the user's cache: events, one a line, after the moment they reach to."""

from __future__ import annotations

import os
from pathlib import Path

from bot.backtest import Replayed
from bot.errors import ConfigError, StoreError
from store import codec
from store.codec import load_event


class Notes:
    """name: of the question. again: what is noted of it is forgotten."""

    def __init__(self, name: str, start: int, *, again: bool = False) -> None:
        cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "xidbot"
        self._path = cache / f"backtest-{name}.jsonl"
        self._start = start
        if again:
            self.forget()

    def read(self) -> Replayed:
        """Raises ConfigError for notes that this version cannot read."""
        if not self._path.exists():
            return Replayed([], self._start)
        try:
            head, *lines = self._path.read_text(encoding="utf-8").splitlines()
            events = [load_event(kind, 1, body) for kind, _, body in (line.partition(" ") for line in lines)]
            return Replayed(events, int(head))
        except (OSError, ValueError, StoreError) as error:
            told = error.message if isinstance(error, StoreError) else error
            raise ConfigError(f"{self._path}: no notes to go on from: {told}", "--again begins anew") from error

    def write(self, done: Replayed) -> None:
        """Whole or not at all."""
        text = "\n".join([str(done.until), *(f"{type(event).__name__} {codec.dump(event)}" for event in done.events)])
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            part = self._path.with_suffix(".part")
            part.write_text(text, encoding="utf-8")
            part.replace(self._path)
        except OSError as error:
            raise ConfigError(f"{self._path}: cannot be written: {error.strerror}", "set $XDG_CACHE_HOME") from error

    def forget(self) -> None:
        self._path.unlink(missing_ok=True)
