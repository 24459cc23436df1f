"""Events and documents to JSON and back. The dataclasses themselves are the schema."""

from __future__ import annotations

from typing import Any

from pydantic import TypeAdapter, ValidationError

from bot.errors import StoreError
from bot.events import EVENTS, Event

_ADAPTERS: dict[type, TypeAdapter[Any]] = {}


def _adapter(cls: type) -> TypeAdapter[Any]:
    if cls not in _ADAPTERS:
        _ADAPTERS[cls] = TypeAdapter(cls)
    return _ADAPTERS[cls]


def dump(thing: object) -> str:
    return _adapter(type(thing)).dump_json(thing).decode()


def load(cls: type, body: str) -> Any:
    try:
        return _adapter(cls).validate_json(body)
    except ValidationError as error:
        raise StoreError(
            f"a stored {cls.__name__} does not fit this version: {error.errors()[0]['msg']} in {body[:120]}",
            "was the database written by a newer xidbot?",
        ) from error


def load_event(kind: str, version: int, body: str) -> Event:
    """Old versions are upgraded here; there is only one so far."""
    cls = EVENTS.get(kind)
    if cls is None:
        raise StoreError(f"unknown event {kind!r} (version {version})", "was the database written by a newer xidbot?")
    event: Event = load(cls, body)
    return event
