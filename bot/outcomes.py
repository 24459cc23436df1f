"""What came of recoveries: who recovered (chain classes), how often and how fast, and whether two classes differ.

Pure. Nothing here is a cause: who recovers what is not drawn by lot, and callers say so beside the numbers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import ceil, sqrt
from typing import Literal

from bot.model import ChainClass, Link, Recovery

BOT = {"auto", "approved"}
PEOPLE = {"command", "external"}

Class = ChainClass | Literal["open"]
CLASSES: tuple[Class, ...] = (
    "automated", "assisted", "manual", "takeover", "mixed", "scheduler", "in_job", "none", "open",
)  # fmt: skip
UNJUDGED = frozenset({"none", "open"})  # never interrupted, or not over: no success and no failure
RECURS_WITHIN = 86_400  # s after it had regained (DESIGN §7)
Z95 = 1.959964  # two-sided 95 %
Z80 = 0.841621  # power 80 %, the usual of sample-size tables

Interval = tuple[float, float]


def chain_class(chain: Sequence[Link]) -> ChainClass:
    """Who recovered: from the origins of the attempts, in order (DESIGN §1, DETAILS 'Classes')."""
    origins = [link.origin or "unattributed" for link in chain]
    kinds = set(origins)
    if not kinds:
        return "none"
    if "unattributed" in kinds:
        return "mixed"
    if kinds <= BOT:
        return "automated" if kinds == {"auto"} else "assisted"
    if kinds <= PEOPLE:
        return "manual"
    if kinds == {"scheduler"}:
        return "scheduler"
    if kinds == {"in_job"}:
        return "in_job"
    first_bot = next((i for i, origin in enumerate(origins) if origin in BOT), None)
    if first_bot is not None and any(origin in PEOPLE for origin in origins[first_bot:]):
        return "takeover"
    return "mixed"


# -- one recovery ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Chain:
    """A recovery as the statistics see it. kind: of its incident.

    after: s from the stop to the first new checkpoint, or, where there was none, to its end or now (censored).
    settled: whether it is known to have survived or not; a run that its owner ended after it had regained is not.
    """

    chain_class: Class
    kind: str
    attempts: int
    regained: bool
    survived: bool
    after: int
    settled: bool
    recurred: bool


def chains(recoveries: Iterable[Recovery], kinds: Mapping[str, str], now: int) -> list[Chain]:
    """In order of the stop. kinds: incident tag → kind. Moved ones are told by the incident that explains them."""
    counted = sorted((r for r in recoveries if r.outcome != "moved"), key=lambda r: (r.stopped, r.id))
    return [_chain(r, counted, kinds[r.tag], now) for r in counted]


def _chain(recovery: Recovery, others: Iterable[Recovery], kind: str, now: int) -> Chain:
    regained = first_regained(recovery)
    known_until = next(at for at in (regained, recovery.ended, now) if at is not None)
    unknown = recovery.ended is None or (recovery.outcome == "censored" and regained is None)
    return Chain(
        chain_class="open" if unknown else recovery.chain_class or "mixed",
        kind=kind,
        attempts=len(recovery.chain),
        regained=regained is not None,
        survived=recovery.survived is not None,
        after=max(0, known_until - recovery.stopped),
        settled=recovery.ended is not None and recovery.outcome != "censored",
        recurred=regained is not None and any(_follows(other, recovery, regained) for other in others),
    )


def first_regained(recovery: Recovery) -> int | None:
    return min((link.regained for link in recovery.chain if link.regained is not None), default=None)


def _follows(other: Recovery, recovery: Recovery, regained: int) -> bool:
    same_run = other.session == recovery.session and other.id != recovery.id
    return same_run and 0 <= other.stopped - regained < RECURS_WITHIN


def downtimes(recovery: Recovery, now: int) -> Iterator[tuple[int, int]]:
    """(from, to) without progress: from the stop, and again from the end of each attempt that had regained."""
    if recovery.outcome == "moved" or (recovery.outcome == "cancelled" and not recovery.chain):
        return  # told elsewhere; or nobody ever saw the run interrupted
    since: int | None = recovery.stopped
    for link in recovery.chain:
        if since is not None and link.regained is not None:
            yield since, max(since, link.regained)
            since = None
        if since is None:
            since = link.ended
    if since is not None:
        until = recovery.ended if recovery.ended is not None else now
        yield since, max(since, until)


# -- many ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Figures:
    """One class. ci, survived_ci: of the shares that regained and survived; None where there is nothing to judge.

    settled: chains whose survival is known. median: s by which half of the chains had regained; None = fewer did.
    """

    chains: int = 0
    attempts: int = 0
    regained: int = 0
    survived: int = 0
    settled: int = 0
    recurred: int = 0
    ci: Interval | None = None
    survived_ci: Interval | None = None
    median: int | None = None


def figures(counted: Iterable[Chain]) -> dict[Class, Figures]:
    """Every class, also those without a chain; their chains add up to all."""
    by_class: dict[Class, list[Chain]] = {name: [] for name in CLASSES}
    for chain in counted:
        by_class[chain.chain_class].append(chain)
    return {name: _figures(mine, judged=name not in UNJUDGED) for name, mine in by_class.items()}


def _figures(mine: Sequence[Chain], *, judged: bool) -> Figures:
    """A chain that was cancelled before it regained counts as not regained: whoever stops a hopeless one does not
    make its class better."""
    regained, survived = sum(c.regained for c in mine), sum(c.survived for c in mine)
    settled = sum(c.settled for c in mine)
    return Figures(
        chains=len(mine),
        attempts=sum(c.attempts for c in mine),
        regained=regained,
        survived=survived,
        settled=settled,
        recurred=sum(c.recurred for c in mine),
        ci=wilson(regained, len(mine)) if judged else None,
        survived_ci=wilson(survived, settled) if judged else None,
        median=median([c.after if c.regained else None for c in mine]),
    )


def median(seconds: Sequence[int | None]) -> int | None:
    """Of times where None is longer than all others: leaving out the runs that never came back would flatter."""
    known = sorted(s for s in seconds if s is not None)
    half = (len(seconds) + 1) // 2
    return known[half - 1] if 0 < half <= len(known) else None


# -- intervals -------------------------------------------------------------------------------------


def wilson(hits: int, cases: int) -> Interval | None:
    """95 % score interval of a share (Wilson 1927): never beyond 0 and 1, and fair at 4 of 12."""
    if cases == 0:
        return None
    share, z2 = hits / cases, Z95**2 / cases
    middle = (share + z2 / 2) / (1 + z2)
    reach = Z95 * sqrt(share * (1 - share) / cases + z2 / (4 * cases)) / (1 + z2)
    return max(0.0, middle - reach), min(1.0, middle + reach)


@dataclass(frozen=True, slots=True)
class Difference:
    """Of two shares, first minus second. more: cases that would probably tell; None = they look the same."""

    points: float
    low: float
    high: float
    more: int | None

    @property
    def tells(self) -> bool:
        return self.low > 0 or self.high < 0


def difference(first: Figures, second: Figures) -> Difference | None:
    """Of the shares that regained. Newcombe's hybrid score interval (1998, method 10); None without cases."""
    if first.ci is None or second.ci is None:
        return None
    a, b = first.regained / first.chains, second.regained / second.chains
    below = sqrt((a - first.ci[0]) ** 2 + (second.ci[1] - b) ** 2)
    above = sqrt((first.ci[1] - a) ** 2 + (b - second.ci[0]) ** 2)
    return Difference(a - b, a - b - below, a - b + above, _more(first, second, a - b))


def _more(first: Figures, second: Figures, apart: float) -> int | None:
    """Cases still missing, both classes together, if the shares are as far apart as they look: equal classes, 95 %,
    power 80 %. Two hits and two misses are added to each (Agresti and Coull 1998), so that 1 of 1 is not certainty."""
    if apart == 0:
        return None
    spread = sum(p * (1 - p) for p in ((f.regained + 2) / (f.chains + 4) for f in (first, second)))
    each = ceil((Z95 + Z80) ** 2 * spread / apart**2)
    return max(1, sum(max(0, each - f.chains) for f in (first, second)))
