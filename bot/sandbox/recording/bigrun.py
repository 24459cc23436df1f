"""The big run's life: attempts one after the other, its saves, and what ends each attempt."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from random import Random

from bot.sandbox.recording import disruptions, failures, storage
from bot.sandbox.recording.fleet import HOUR, MINUTE
from bot.sandbox.recording.phases import Phase
from bot.sandbox.recording.story import Ending, Scene, Story
from bot.sandbox.recording.truth import Save

XID_FAILURES, OTHER_FAILURES = 10, 7  # in 55 days, as the study had them
APPLICATION_FAULTS, HANGS, OWNERS, MAINTENANCE, STALLS, CRASHES = 32, 2, 6, 3, 9, 2
LEMONS, LEMON_SHARE = 3, 0.55  # three of 63 nodes caused over half of the study's exclusions
SETTLES = 30 * MINUTE  # of training
STEP_SECONDS = 18  # of training
Strike = Callable[[Scene], Ending]


@dataclass(order=True)
class Blow:
    """What will happen to the run. node None: any of its nodes. left: how often it comes again on the same node."""

    at: int
    strike: Strike = field(compare=False)
    node: int | None = field(default=None, compare=False)
    left: int = field(default=0, compare=False)


@dataclass
class Attempt:
    session: str
    job: str
    nodes: tuple[int, ...]
    start: int
    settled: int  # until then nothing happens to it


class BigRun:
    """Plays the whole time at once, into the story."""

    def __init__(self, story: Story) -> None:
        self.story, self.dice = story, story.dice
        self.lemons = self.dice.sample(range(len(story.fleet)), min(LEMONS, len(story.fleet)))
        self.away = {node: until for node, _, until in story.taken}
        self.blows: list[Blow] = []
        self.stalls: list[int] = []
        self.number, self.step, self.session = 0, 0, ""
        self.interval, self.save = 45 * MINUTE, 150

    def play(self) -> None:
        self._plan()
        self._new_session()
        at = self.story.start - self.story.hours(3, 20)
        while at < self.story.end:
            at = self._attempt(at)

    # -- what will happen ----------------------------------------------------------------------------------------------

    def _plan(self) -> None:
        story = self.story
        xid = _deck(self.dice, failures.XID_DECK, tuple(failures.WITH_XID), _whole(story, XID_FAILURES))
        other = _deck(self.dice, failures.OTHER_DECK, failures.OTHER_DECK, _whole(story, OTHER_FAILURES))
        shapes = {**failures.WITH_XID, **failures.WITHOUT}
        kinds = xid + other
        self.dice.shuffle(kinds)
        for at, kind in zip(_spread(story, len(kinds)), kinds, strict=True):
            self.push(Blow(at, shapes[kind], left=self.dice.randint(1, 3) if kind == "contained" else 0))
        for count, strike in ((APPLICATION_FAULTS, disruptions.application), (HANGS, disruptions.hang),
                              (OWNERS, disruptions.owner), (MAINTENANCE, disruptions.maintenance),
                              (CRASHES, disruptions.crash)):  # fmt: skip
            for at in story.times(count):
                self.push(Blow(at, strike))
        self.stalls = story.times(STALLS)

    def push(self, blow: Blow) -> None:
        heapq.heappush(self.blows, blow)

    def _new_session(self) -> None:
        self.number += 1
        self.session = f"pretrain-{self.number}"
        self.interval = self.dice.choice((30, 45, 60)) * MINUTE
        self.save = self.dice.randint(90, 210)
        self.step = 0

    # -- one attempt ---------------------------------------------------------------------------------------------------

    def _attempt(self, start: int) -> int:
        """Returns when the next one starts."""
        attempt, blow = self._begin(start), self._next()
        if blow and blow.at < attempt.settled:
            blow = replace(blow, at=attempt.settled + self.story.minutes(0, 50))
        if blow is None or blow.at >= self.story.end:
            self._live(attempt, self.story.end + 1)
            self._close(attempt, Ending(self.story.end + 1, self.story.end + 1, "RUNNING"))
            return self.story.end
        ending = blow.strike(self._scene(attempt, blow))
        self._live(attempt, ending.stops)
        self._close(attempt, ending)
        if blow.left and ending.ends < self.story.end:
            again = ending.ends + self.story.hours(1.5, 6)
            self.push(Blow(again, blow.strike, self._victim(attempt, blow), blow.left - 1))
        return self._pause(attempt, ending)

    def _begin(self, start: int) -> Attempt:
        nodes, trains = self._nodes(start), start + self.story.minutes(3, 7)
        self.story.doing(Phase.START, nodes, start, trains)
        loaded = trains + self.story.minutes(8, 33)  # the study's median load took 33 min
        self.story.doing(Phase.LOAD, nodes, trains, loaded)
        return Attempt(self.session, self.story.next_job(), nodes, start, loaded + SETTLES)

    def _nodes(self, start: int) -> tuple[int, ...]:
        free = [node for node in range(len(self.story.fleet)) if self.away.get(node, 0) <= start]
        size = min(self.story.fleet.run_size, len(free))
        spare = sorted(self.dice.sample(free, len(free) - size))
        return tuple(node for node in free if node not in spare)

    def _next(self) -> Blow | None:
        return heapq.heappop(self.blows) if self.blows else None

    def _scene(self, attempt: Attempt, blow: Blow) -> Scene:
        blow.node = self._victim(attempt, blow)
        last = blow.left == 0 or blow.at > self.story.end - 12 * HOUR
        blow.left = 0 if last else blow.left
        return Scene(self.story, blow.at, attempt.nodes, blow.node, last)

    def _victim(self, attempt: Attempt, blow: Blow) -> int:
        if blow.node in attempt.nodes:
            return blow.node
        lemons = [node for node in self.lemons if node in attempt.nodes]
        hardware = blow.strike not in disruptions.HARMLESS
        return self.dice.choice(lemons if lemons and hardware and self.dice.random() < LEMON_SHARE else attempt.nodes)

    def _close(self, attempt: Attempt, ending: Ending) -> None:
        story = self.story
        story.doing(Phase.HANG, attempt.nodes, ending.stops, ending.ends)
        story.ran(attempt.session, attempt.job, attempt.nodes, attempt.start, ending.ends, ending.state)
        story.taken += [(node, attempt.start, ending.ends) for node in attempt.nodes]
        for node, until in ending.away:
            self.away[node] = max(self.away.get(node, 0), until)
            story.taken.append((node, ending.stops, until))
        if ending.new_session:
            self._new_session()

    def _pause(self, attempt: Attempt, ending: Ending) -> int:
        """Until the next attempt. The study's retries came every 11 min, and most of them died while they loaded."""
        at = ending.ends + (self.story.minutes(20, 200) if ending.new_session else self.story.minutes(2, 25))
        if ending.state != "FAILED":
            return disruptions.between(self.story, attempt.nodes, ending.ends, at)
        for _ in range(self.dice.choice((0, 0, 0, 0, 1, 1, 2, 4))):
            at = self._stillborn(at)
        return at

    def _stillborn(self, start: int) -> int:
        attempt = Attempt(self.session, self.story.next_job(), self._nodes(start), start, start)
        init = self.story.minutes(2, 5)
        stops = start + init + self.story.minutes(1, 9)
        self.story.doing(Phase.START, attempt.nodes, start, start + init)
        self.story.doing(Phase.LOAD, attempt.nodes, start + init, stops)
        self._close(attempt, Ending(stops, stops + self.dice.randint(5, 60)))
        return stops + self.story.minutes(1, 4)

    # -- training ------------------------------------------------------------------------------------------------------

    def _live(self, attempt: Attempt, stops: int) -> None:
        """Training with saves, evaluations and hiccups, until it stops."""
        at, evaluates = attempt.settled - SETTLES, attempt.settled + self.story.hours(1, 6)
        while at < stops:
            pause = self.interval + self.dice.randint(-60, 60)
            self._train(attempt, at, min(at + pause, stops))
            self.step += min(pause, stops - at) // STEP_SECONDS
            at = self._save(attempt, at + pause, stops)
            if evaluates < at < stops:
                until = min(at + self.story.minutes(4, 14), stops)
                self.story.doing(Phase.EVAL, attempt.nodes, at, until)
                at, evaluates = until, at + self.story.hours(4, 8)

    def _train(self, attempt: Attempt, start: int, stops: int) -> None:
        self.story.doing(Phase.TRAIN, attempt.nodes, start, stops)
        if self.dice.random() < 0.01:  # the data loader of all ranks waits for the file system
            at = self.dice.randint(start, max(start, stops - 300))
            self.story.doing(Phase.HANG, attempt.nodes, at, min(stops, at + self.story.minutes(1, 3)))

    def _save(self, attempt: Attempt, at: int, stops: int) -> int:
        lasts = round(self.save * self.dice.uniform(0.85, 1.3))
        if self.stalls and self.stalls[0] <= at < stops - 2 * HOUR:
            self.stalls.pop(0)
            lasts = storage.stall(self.story, attempt.nodes, at, lasts)
        until = min(at + lasts, stops)
        self.story.doing(Phase.SAVE, attempt.nodes, at, until)
        if at + lasts <= stops:
            self.story.saves.append(Save(attempt.job, self.step, at, at + lasts))
        return max(until, at)


def _whole(story: Story, per_55_days: int) -> int:
    return max(1, round(per_55_days * story.days / 55))


def _deck(dice: Random, first: Sequence[str], any_of: Sequence[str], count: int) -> list[str]:
    """The kinds as the study has them, the fifth of them replaced by chance."""
    cards = list(first) * (count // len(first) + 1)
    dealt = dice.sample(cards[: max(count, len(first))], count)
    return [dice.choice(any_of) if dice.random() < 0.2 else card for card in dealt]


def _spread(story: Story, count: int) -> list[int]:
    """One in each part of the time, so that repairs rarely overlap; not in the first and the last hours."""
    quiet = min(10 * HOUR, (story.end - story.start) // 5)
    first, last = story.start + quiet, story.end - quiet
    part = (last - first) / count
    return [round(first + part * (i + story.dice.random())) for i in range(count)]
