"""Arrays that are made once and used several times, as many as there is room for."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field

from bot.sandbox.recording.effects import Floats


@dataclass
class Kept:
    """room: bytes. What was used longest ago goes first."""

    room: int
    _arrays: OrderedDict[tuple[object, ...], Floats] = field(default_factory=OrderedDict)
    _bytes: int = 0

    def get(self, key: tuple[object, ...], made: Callable[[], Floats]) -> Floats:
        if key in self._arrays:
            self._arrays.move_to_end(key)
            return self._arrays[key]
        array = made()  # may ask for others itself
        self._arrays[key] = array
        self._bytes += array.nbytes
        while self._bytes > self.room and len(self._arrays) > 1:
            _, oldest = self._arrays.popitem(last=False)
            self._bytes -= oldest.nbytes
        return array
