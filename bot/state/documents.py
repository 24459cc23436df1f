"""The documents that the log adds up to: which kinds there are, and a table of each in memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from bot import events as ev
from bot.model import (
    Action,
    Answer,
    Hold,
    Incident,
    Meta,
    Plan,
    Reading,
    Recovery,
    SaveHistory,
    Session,
    Sighting,
    SourceHealth,
)

T = TypeVar("T")
Doc = Any
Loader = Callable[[str, str], Doc | None]


class Kind:
    """One kind of document: its name in the store, its class, its id and whether it is still live."""

    def __init__(self, name: str, cls: type, key: Callable[[Any], str], live: Callable[[Any], bool]) -> None:
        self.name, self.cls, self.key, self.live = name, cls, key, live


KINDS: tuple[Kind, ...] = (
    Kind("meta", Meta, lambda d: "meta", lambda d: True),
    Kind("session", Session, lambda d: d.key, lambda d: d.ended_at is None),
    Kind("reading", Reading, lambda d: f"{d.node}/{d.signal}", lambda d: d.state != "good"),
    Kind("app_xid", Sighting, lambda d: d.id, lambda d: False),  # kept as long as anything that has ended
    Kind("saves", SaveHistory, lambda d: d.session, lambda d: False),  # a run that saves changes it all the time
    Kind("source", SourceHealth, lambda d: d.name, lambda d: True),
    Kind("incident", Incident, lambda d: d.tag, lambda d: d.closed is None),
    Kind("recovery", Recovery, lambda d: d.id, lambda d: d.ended is None),
    Kind("plan", Plan, lambda d: d.id, lambda d: d.status in ("proposed", "approved")),
    Kind("action", Action, lambda d: d.key, lambda d: d.end is None),
    Kind("hold", Hold, lambda d: d.id, lambda d: d.released is None),
    Kind("answer", Answer, lambda d: str(d.request), lambda d: False),
    Kind("digest", ev.DigestPosted, lambda d: d.week, lambda d: True),  # never forgotten: never posted twice
)
BY_CLASS = {kind.cls: kind for kind in KINDS}
BY_NAME = {kind.name: kind for kind in KINDS}


class Documents:
    """Documents by kind and id. `load` finds one that is no longer kept in memory."""

    def __init__(self, load: Loader | None = None) -> None:
        self.docs: dict[str, dict[str, Doc]] = {kind.name: {} for kind in KINDS}
        self.changed: set[tuple[str, str]] = set()
        self._load = load

    def put(self, doc: Doc) -> None:
        kind = BY_CLASS[type(doc)]
        key = kind.key(doc)
        self.docs[kind.name][key] = doc
        self.changed.add((kind.name, key))

    def find(self, cls: type[T], key: str) -> T | None:
        """What is in memory: everything live, and what ended in the last days."""
        found: T | None = self.docs[BY_CLASS[cls].name].get(key)
        return found

    def get(self, cls: type[T], key: str) -> T:
        """Like find, but it must exist: an old one is loaded."""
        doc = self.find(cls, key)
        if doc is None and self._load:
            doc = self._load(BY_CLASS[cls].name, key)
        if doc is None:
            raise KeyError(f"no {cls.__name__} {key}")
        return doc

    def all(self, cls: type[T]) -> list[T]:
        return list(self.docs[BY_CLASS[cls].name].values())

    def saves_of(self, session: str) -> SaveHistory:
        """Empty where no save is known."""
        try:
            return self.get(SaveHistory, session)
        except KeyError:
            return SaveHistory(session)

    @property
    def meta(self) -> Meta:
        return self.find(Meta, "meta") or Meta()
