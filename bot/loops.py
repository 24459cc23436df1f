"""The edge of each loop: whatever goes wrong in a turn is logged and the next turn comes, but for what only a person
can mend."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from bot.errors import LeaseHeld, SourceError, XidbotError

log = logging.getLogger(__name__)


class Loop:
    """One loop's turn with its edge. `fatal` is called once when going on would do harm."""

    def __init__(self, name: str, turn: Callable[[], None], fatal: Callable[[XidbotError], None]) -> None:
        self.name, self._turn, self._fatal = name, turn, fatal
        self.failures = 0
        self._lock = threading.Lock()

    def __call__(self) -> None:
        try:
            self._turn()
            self.failures = 0
        except LeaseHeld as error:
            self._fatal(error)
        except SourceError as error:
            self.failures += 1
            log.warning("%s: %s", self.name, error)
        except Exception:
            self.failures += 1
            log.exception("%s: this turn failed", self.name)
