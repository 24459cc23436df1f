"""Time. Live it is the machine's and APScheduler turns the loops; tests turn it by hand."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Protocol

log = logging.getLogger(__name__)
LEAVE = 10.0  # s that turns under way are given at the end, before what they use is closed


class Clock(Protocol):
    def now(self) -> int:
        """Unix seconds."""
        ...

    def every(self, seconds: float, name: str, turn: Callable[[], None]) -> Callable[[], None]:
        """Run `turn` at once and then every so often, one run at a time. Returns a wake: run it soon."""
        ...

    def stop(self) -> bool:
        """No turn begins any more; returns when none runs, or when those that run have had their time. False: one
        still runs, and uses what it uses."""
        ...


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
        self._loops: dict[str, _Loop] = {}

    def now(self) -> int:
        return int(time.time())

    def every(self, seconds: float, name: str, turn: Callable[[], None]) -> Callable[[], None]:
        loop = self._loops[name] = _Loop(turn)
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

    def stop(self) -> bool:
        if self._scheduler.running:
            self._scheduler.shutdown(wait=False)
        for loop in self._loops.values():
            loop.stop()
        end = time.monotonic() + LEAVE
        late = [name for name, loop in self._loops.items() if not loop.over(max(0.0, end - time.monotonic()))]
        if late:
            log.warning("%s: still in a turn after %g s, left behind", ", ".join(late), LEAVE)
        return not late


class _Loop:
    """One run at a time; whoever comes during a run only asks for one more after it."""

    def __init__(self, turn: Callable[[], None]) -> None:
        self._turn = turn
        self._running = threading.Lock()
        self._again = threading.Event()
        self._stopped = threading.Event()

    def stop(self) -> None:
        """The turn under way is the last."""
        self._stopped.set()

    def over(self, within: float) -> bool:
        """Waits for the turn under way, if any."""
        ended = self._running.acquire(timeout=within)
        if ended:
            self._running.release()
        return ended

    def run(self) -> None:
        if not self._stopped.is_set():
            self._again.set()
        while self._again.is_set() and self._running.acquire(blocking=False):
            try:
                self._again.clear()
                if not self._stopped.is_set():
                    self._turn()
            finally:
                self._running.release()
