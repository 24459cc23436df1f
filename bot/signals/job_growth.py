"""Whether a job's log shows that the job gets on: by its steps where it tells any, else by its growth. Pure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Growth:
    """One attempt's. moved: when it got on last; times: how often since it is followed; longest: the longest time (s)
    that it did not and then did again. step: the newest one told."""

    longest: int = 0
    times: int = 0
    moved: int | None = None
    step: int | None = None
    _before: int = 0

    def next(self) -> Growth:
        """Another attempt of the job: it will pause as this one did, and nothing else is known of it."""
        return Growth(longest=self.longest, _before=self.longest)

    def wrote(self, at: int, step: int | None) -> None:
        """Something new was there, written at about `at`. step: the newest one that the log has told by now."""
        if step is not None and step == self.step:
            return
        if step is not None and self.step is None:  # steps come less often than lines
            self.times, self.longest = 0, self._before
        elif self.moved is not None:
            self.times, self.longest = self.times + 1, max(self.longest, at - self.moved)
        self.moved, self.step = max(at, self.moved or at), step
