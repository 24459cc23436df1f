"""Arrays of samples, made day by day from the story. All of it follows from the seed: the noise of a metric on a day
comes from a generator of its own, so that any day can be made without the noise of the days before it."""

from __future__ import annotations

from dataclasses import dataclass, field
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from bot.sandbox.recording import levels
from bot.sandbox.recording.effects import Floats, Spell, span
from bot.sandbox.recording.families import COLUMNS, FAMILIES, Family
from bot.sandbox.recording.fleet import DAY, ROWS, STEP
from bot.sandbox.recording.kept import Kept
from bot.sandbox.recording.levels import Level
from bot.sandbox.recording.nfs import nfs
from bot.sandbox.recording.phases import painted
from bot.sandbox.recording.story import Story

KNOT = 30  # samples between two knots of the slow wander
ROOM = 256 * 2**20  # bytes of samples that are kept, since one metric is asked for by several signals
BOOTED = 40 * DAY  # s: how long the machines had run when the recording began


@dataclass
class Samples:
    """day(name, number): (ROWS, columns of the metric), NaN where there is no sample. Days count from the start of the
    recording, which is midnight in UTC."""

    story: Story
    seed: int
    _kept: Kept = field(default_factory=lambda: Kept(ROOM))
    _carried: dict[str, list[Floats]] = field(default_factory=dict)
    _phases: dict[int, NDArray[np.intp]] = field(default_factory=dict)
    _spells: dict[tuple[str, int], list[Spell]] = field(default_factory=dict)

    def day(self, name: str, number: int) -> Floats:
        """Must not be changed by the caller."""
        return self._kept.get((name, number), lambda: self._scraped(FAMILIES[name], number))

    def up(self, part: str, number: int) -> Floats:
        """(ROWS, nodes): 1, 0 where the exporter did not answer, NaN where nobody asked."""
        begin, values = self.begin(number), np.ones((ROWS, len(self.story.fleet)))
        for what, value in ((part, 0), ("scrape", np.nan)):
            for spell in self._during(f"silent/{what}", number):
                values[span(spell.start, spell.end, begin), list(spell.columns)] = value
        return values

    def begin(self, number: int) -> int:
        return self.story.start + number * DAY

    # -- what the exporter says ----------------------------------------------------------------------------------------

    def _scraped(self, family: Family, number: int) -> Floats:
        begin, effects = self.begin(number), self.story.effects
        values = self._true(family, number)
        for held in effects.held.get(family.name, ()):
            values[span(held.start, held.end, begin), list(held.columns)] = held.value
        if family.per == "gpu":
            for spell in self._during("gone", number):
                values[span(spell.start, spell.end, begin), list(spell.columns)] = np.nan
        for spell in self._during(f"frozen/{family.part}", number):
            self._freeze(family, values, spell, number)
        for what in (family.part, "scrape"):
            for spell in self._during(f"silent/{what}", number):
                values[span(spell.start, spell.end, begin), _columns(family, spell)] = np.nan
        return values

    def _during(self, what: str, number: int) -> list[Spell]:
        """The spells of a kind that the day has a part of; each metric asks for them."""
        key = (what, number)
        if key not in self._spells:
            begin, effects = self.begin(number), self.story.effects
            kind, _, part = what.partition("/")
            found = effects.gone if kind == "gone" else (effects.frozen if kind == "frozen" else effects.outages)[part]
            self._spells[key] = [spell for spell in found if spell.start < begin + DAY and spell.end > begin]
        return self._spells[key]

    def _freeze(self, family: Family, values: Floats, spell: Spell, number: int) -> None:
        rows, columns = span(spell.start, spell.end, self.begin(number)), _columns(family, spell)
        if rows.stop > rows.start:
            earlier = spell.start < self.begin(number) and number > 0
            first = self.day(family.name, number - 1)[-1] if earlier else values[rows.start]
            values[rows, columns] = first[columns]

    # -- what is true --------------------------------------------------------------------------------------------------

    def _true(self, family: Family, number: int) -> Floats:
        begin, fleet = self.begin(number), self.story.fleet
        if family.how == "level":
            return self.level(family.name, number)
        if family.how == "events":
            columns = len(fleet) * family.width
            return self.story.effects.total(family.name, columns, begin, family.reset)
        if family.how == "xid":
            return self.story.effects.last_xid(begin)
        if family.how in ("boot", "clock"):
            return self._clock(family, number)
        return self._counter(family, number)

    def level(self, name: str, number: int) -> Floats:
        """(ROWS, columns): also of the levels that nobody exports, which begin with `nfs/`."""
        level, begin = levels.ALL[name], self.begin(number)
        width = COLUMNS[FAMILIES[name].per] if name in FAMILIES else 1
        values = np.repeat(np.array(level.by_phase, dtype=np.float64)[self.phases(number)], width, axis=1)
        if level.smooth > 1:
            values = _followed(values, level.smooth)
        values *= self._units(name, level, values.shape[1])
        self.story.effects.lay(name, values, begin)
        if name == "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE":
            values *= self._pace(number)
        values = self._wavered(name, level, values, number)
        return np.maximum(values, 0) if name.startswith("nfs/") else _shown(values, level)

    def raw(self, name: str, number: int) -> Floats:
        """A level that several counters are made of."""
        return self._kept.get((name, number), lambda: self.level(name, number))

    def phases(self, number: int) -> NDArray[np.intp]:
        if number not in self._phases:
            while len(self._phases) > 2:
                del self._phases[min(self._phases)]
            self._phases[number] = painted(self.story.doings, len(self.story.fleet), self.begin(number))
        return self._phases[number]

    def _units(self, name: str, level: Level, columns: int) -> Floats:
        return 1 + level.unit * self._random(name, -1).standard_normal(columns)

    def _pace(self, number: int) -> Floats:
        """(ROWS, 1): the step takes now more, now less time, for all ranks alike."""
        return 1 + 0.04 * _interpolated(self._knots("pace", number, 1), self._knots("pace", number + 1, 1)[:1])

    def _wavered(self, name: str, level: Level, values: Floats, number: int) -> Floats:
        random = self._random(name, number)
        if level.noise:
            values *= 1 + level.noise * random.standard_normal(values.shape, dtype=np.float32)
        if level.jitter:
            values += level.jitter * random.standard_normal(values.shape, dtype=np.float32)
        if level.wander:
            columns = values.shape[1]
            knots, after = self._knots(name, number, columns), self._knots(name, number + 1, columns)[:1]
            values *= 1 + level.wander * _interpolated(knots, after)
        return values

    def _knots(self, name: str, number: int, columns: int) -> Floats:
        return self._random(f"{name}/wander", number).standard_normal((ROWS // KNOT, columns))

    def _random(self, name: str, number: int) -> np.random.Generator:
        return np.random.default_rng([self.seed, crc32(name.encode()), number + 1])

    # -- counters ------------------------------------------------------------------------------------------------------

    def _counter(self, family: Family, number: int) -> Floats:
        carried = self._carried.setdefault(family.name, [self._first(family)])
        while len(carried) <= number:
            carried.append(self._counted(family, len(carried) - 1, carried[-1])[-1])
        values = self._counted(family, number, carried[number])
        if len(carried) == number + 1:
            carried.append(values[-1].copy())
        return values

    def _first(self, family: Family) -> Floats:
        columns = len(self.story.fleet) * family.width
        return np.floor(1e6 * self._random(f"{family.name}/first", 0).random(columns)) * (family.how == "rate")

    def _counted(self, family: Family, number: int, carried: Floats) -> Floats:
        rates = self._rates(family, number)
        if family.name.endswith("_slots"):
            return rates
        values = carried + np.cumsum(rates * STEP, axis=0)
        begin = self.begin(number)
        for at, node, what in sorted(self.story.effects.restarts):
            row = span(at, at + DAY, begin).start
            if what in family.reset and begin <= at < begin + DAY and row < ROWS:
                columns = slice(node * family.width, (node + 1) * family.width)
                values[row:, columns] -= values[row, columns]
        return np.round(values, 6) if "_seconds" in family.name else np.floor(values)

    def _rates(self, family: Family, number: int) -> Floats:
        return np.maximum(self.level(family.name, number), 0) if family.how == "rate" else nfs(self, family, number)

    def _clock(self, family: Family, number: int) -> Floats:
        """When the machine was booted, or what its clock says."""
        begin, nodes = self.begin(number), len(self.story.fleet)
        times = begin + np.arange(ROWS, dtype=np.float64)[:, None] * STEP
        values = np.repeat(times, nodes, axis=1)
        if family.how == "boot":
            values[:] = self.story.start - BOOTED + np.arange(nodes)
            for at, node, _ in sorted(r for r in self.story.effects.restarts if r[2] == "boot"):
                values[span(at, 2**62, begin), node] = at
        self.story.effects.lay(family.name, values, begin)
        return np.round(values, 3)


def _columns(family: Family, spell: Spell) -> list[int]:
    return [column for node in spell.columns for column in range(node * family.width, (node + 1) * family.width)]


def _followed(values: Floats, samples: int) -> Floats:
    """The mean of the last samples; before the first row it was as in the first row."""
    padded = np.concatenate([np.repeat(values[:1], samples - 1, axis=0), values])
    return np.asarray(np.sum([padded[i : i + len(values)] for i in range(samples)], axis=0) / samples)


def _interpolated(knots: Floats, after: Floats) -> Floats:
    """(ROWS, columns) from one knot in each half hour and the one that follows."""
    ends = np.concatenate([knots[1:], after])
    part = (np.arange(KNOT) / KNOT)[None, :, None]
    return (knots[:, None] * (1 - part) + ends[:, None] * part).reshape(ROWS, -1)


def _shown(values: Floats, level: Level) -> Floats:
    return np.asarray(np.round(np.clip(values, 0, level.high), level.digits), dtype=np.float64)
