"""Time. Live it is the machine's and APScheduler turns the loops; tests turn it by hand."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Protocol

log = logging.getLogger(__name__)


class Clock(Protocol):
    def now(self) -> int:
        """Unix seconds."""
        ...

    def every(self, seconds: float, name: str, turn: Callable[[], None]) -> Callable[[], None]:
        """Run `turn` at once and then every so often, one run at a time. Returns a wake: run it soon."""
        ...

    def stop(self) -> None: ...


class LiveClock:
    """Each loop has its own thread, so that a hanging Slurm or Slack never stops detection.

    A late run is run (misfire grace is one interval, not APScheduler's one second) and never doubled; a wake during a
    run leads to one more run after it.
    """

    def __init__(self) -> None:
        from apscheduler.executors.pool import ThreadPoolExecutor
        from apscheduler.schedulers.background import BackgroundScheduler

        self._scheduler = BackgroundScheduler(executors={"default": ThreadPoolExecutor(8)}, timezone="UTC")
        self._scheduler.start()

    def now(self) -> int:
        return int(time.time())

    def every(self, seconds: float, name: str, turn: Callable[[], None]) -> Callable[[], None]:
        loop = _Loop(turn)
        self._scheduler.add_job(
            loop.run,
            "interval",
            seconds=seconds,
            id=name,
            max_instances=100,  # a run that finds another under way returns at once
            coalesce=True,
            misfire_grace_time=max(1, int(seconds)),
        )

        def wake() -> None:
            threading.Thread(target=loop.run, name=f"{name}-wake", daemon=True).start()

        wake()
        return wake

    def stop(self) -> None:
        self._scheduler.shutdown(wait=False)


class _Loop:
    """One run at a time; whoever comes during a run only asks for one more after it."""

    def __init__(self, turn: Callable[[], None]) -> None:
        self._turn = turn
        self._running = threading.Lock()
        self._again = threading.Event()

    def run(self) -> None:
        self._again.set()
        while self._again.is_set() and self._running.acquire(blocking=False):
            try:
                self._again.clear()
                self._turn()
            finally:
                self._running.release()
