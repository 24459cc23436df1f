"""Python's collector of cycles, kept out of where it only costs."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock

_lock = Lock()
_inside = 0


@contextmanager
def uncollected() -> Iterator[None]:
    """No collection meanwhile, in any thread. An answer about a large cluster is a million small lists that live for a
    second and have no cycles; looking through them again and again takes two thirds of the time of reading it."""
    global _inside
    with _lock:
        _inside += 1
        gc.disable()
    try:
        yield
    finally:
        with _lock:
            _inside -= 1
            if not _inside:
                gc.enable()
