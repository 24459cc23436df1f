"""`storage`: scripted counters of 60 clients, replayed: which stalls are found, how they are named, and how soon."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from bot.model import Stall, StallRule, Verdict
from bot.sandbox.storage_counters import MB, Save, Site, Spell, StorageCounters, every
from bot.storage.numbers import StorageNumbers, numbers
from bot.storage.watch import StorageWatch, storage_day
from bot.storage.window import StorageWindow

MINUTE = 60
GAP = 15  # minutes from save to save
FAULT = 70 * MINUTE  # the fifth save begins then
TAKES = 120  # s of a save at its own pace
SAVES = every(GAP, 2.5, first=10)
SITE = Site(hours=2.25, saves=SAVES)
WHOLE = SITE.nodes * 670 * MB  # bytes/s of a save


@dataclass(frozen=True)
class Scenario:
    """expected: (rule, verdict, node), None = nothing may open. onset: when the rule becomes true, s since the start: a
    rate needs one scrape to be measured, a late save twice its usual time, a hang and a save that is due no time."""

    name: str
    site: Site
    expected: tuple[StallRule, Verdict, str] | None = None
    onset: int = 0
    restarts: tuple[int, ...] = ()


def _with(*spells: Spell, **facts: object) -> Site:
    return replace(SITE, spells=spells, **facts)  # type: ignore[arg-type]


def _slow(name: str, verdict: Verdict, *spells: Spell, **facts: object) -> Scenario:
    return Scenario(name, _with(*spells, **facts), ("slow_save", verdict, ""), FAULT + SITE.scrape)


UNTIL = FAULT + 25 * MINUTE
STALLS = (
    _slow("fewer slots than before", "client_slots", Spell("slots", FAULT, UNTIL, 16)),
    _slow(
        "a queue before full slots is usual, and there are fewer",
        "client_slots",
        Spell("slots", FAULT, UNTIL, 24),
        slots=128,
        rtt=0.2,
        saves=every(GAP, 2.5, first=10, pace=25e9),
    ),
    _slow(
        "a node writes in bursts, and there are fewer slots",
        "client_slots",
        Spell("rest", 0, UNTIL, 2 / 3),
        Spell("slots", FAULT, UNTIL, 16),
    ),
    _slow("a quarter of the slots", "client_slots", Spell("slots", FAULT, UNTIL, 250), rtt=1.0),
    Scenario(
        "the job itself hands over little",
        replace(SITE, saves=tuple(replace(s, pace=45 * MB) if s.start == FAULT else s for s in SAVES)),
        ("slow_save", "unknown", ""),
        FAULT + 2 * (TAKES + 5),
    ),
    _slow("the server writes a tenth", "server", Spell("server", FAULT, UNTIL, 0.1 * WHOLE)),
    Scenario(
        "the server becomes slow in the middle",
        _with(Spell("server", FAULT + 45, UNTIL, 0.1 * WHOLE)),
        ("slow_save", "server", ""),
        FAULT + 45 + SITE.scrape,
    ),
    Scenario(
        "one node's answers take long",
        _with(Spell("rtt", FAULT, UNTIL, 120, node=16)),
        ("slow_save", "node_path", "node-17"),
        FAULT + 2 * (TAKES + 5),
    ),
    Scenario(
        "one node loses packets",
        _with(Spell("loss", FAULT, UNTIL, 0.047, node=30)),
        ("slow_save", "node_path", "node-31"),
        FAULT + 2 * (TAKES + 5),
    ),
    _slow("others fill the links", "link", Spell("link", FAULT, UNTIL, 0.995)),
    _slow(
        "everybody asks for attributes",
        "metadata",
        Spell("metadata", FAULT, UNTIL, 3000),
        Spell("server", FAULT, UNTIL, 0.15 * WHOLE),
    ),
    _slow(
        "a save of many small files, and the server answers later",
        "server",
        Spell("files", 0, UNTIL, 2),
        Spell("server", FAULT, UNTIL, 0.1 * WHOLE),
    ),
    _slow("RDMA does not tell its slots", "unknown", Spell("slots", FAULT, UNTIL, 16), rdma=True),
    Scenario(
        "the server hangs in a save", _with(Spell("hang", FAULT + 40, FAULT + 600)), ("hang", "server", ""), FAULT + 40
    ),
    Scenario(
        "the server hangs in a save, and every node reads data all the time",
        _with(Spell("hang", FAULT + 40, FAULT + 600), Spell("read", 0, 2**20, 5 * MB)),
        ("hang", "server", ""),
        FAULT + 40,
    ),
    Scenario(
        "one node hangs in a save",
        _with(Spell("hang", FAULT + 40, FAULT + 600, node=8)),
        ("hang", "node_path", "node-09"),
        FAULT + 40 + 45,
    ),
    Scenario(
        "no save comes any more",
        replace(SITE, saves=SAVES[:5]),
        ("overdue_save", "unknown", ""),
        FAULT + 2 * GAP * MINUTE,
    ),
)
SILENT = (
    Scenario("the first save takes long", replace(SITE, saves=(Save(600, pace=80 * MB), *SAVES[3:]))),
    Scenario(
        "an evaluation writes and reads",
        _with(
            Spell("write", FAULT + 300, FAULT + 700, 40 * MB, node=0), Spell("read", FAULT + 250, FAULT + 800, 100 * MB)
        ),
    ),
    Scenario("saves come half as often", replace(SITE, saves=(*SAVES[:5], *SAVES[6::2]))),
    Scenario(
        "saves come twice as often",
        replace(SITE, saves=tuple(sorted((*SAVES, *(Save(s.start + 450) for s in SAVES[4:])), key=lambda s: s.start))),
    ),
    Scenario(
        "saves vary as usual",
        replace(
            SITE,
            saves=tuple(
                replace(s, pace=p * MB)
                for s, p in zip(SAVES, (670, 600, 700, 620, 450, 640, 690, 430, 650), strict=False)
            ),
        ),
    ),
    Scenario(
        "saves grow", replace(SITE, saves=tuple(replace(s, bytes=s.bytes * (1 + 0.2 * i)) for i, s in enumerate(SAVES)))
    ),
    Scenario("a node reboots between saves", _with(Spell("down", FAULT + 400, FAULT + 700, node=5))),
    Scenario("the bot restarts in a save", SITE, restarts=(FAULT + 60, FAULT + GAP * MINUTE + 30)),
    Scenario(
        "small jobs write on the spares",
        _with(*(Spell("write", m * MINUTE, (m + 7) * MINUTE, 200 * MB, node=61) for m in range(5, 130, 17))),
    ),
    Scenario("nothing is scraped during a save", _with(Spell("unscraped", FAULT - 120, FAULT + 500))),
    Scenario("nothing is scraped for two minutes in a save", _with(Spell("unscraped", FAULT + 40, FAULT + 160))),
    Scenario(
        "every node reads the training's data all the time",
        _with(Spell("read", 0, 2**20, 5 * MB), saves=(Save(60, bytes=100e9, read=True), *SAVES)),
    ),
    Scenario(
        "the run loads at its start", replace(SITE, saves=(Save(30, bytes=400e9, pace=300 * MB, read=True), *SAVES[2:]))
    ),
)
SCENARIOS = (*STALLS, *SILENT)


@dataclass(frozen=True)
class Found:
    """What the watch told first, and when; None = nothing."""

    stall: Stall | None
    at: int


def watch(scenario: Scenario, n: StorageNumbers) -> Found:
    """The first stall; its verdict as it stood at the end. Times in s since the start."""
    counters = StorageCounters(scenario.site)
    window = counters.window(n.step)
    first: tuple[int, Stall] | None = None
    for begin, end in _lives(scenario, window):
        for row in storage_day(window.part(0, end), [scenario.site.span], n):
            stall = next((v.stall for v in row.views if v.stall), None)
            if stall and row.at >= window.times[begin] and (first is None or stall.onset == first[1].onset):
                first = (
                    first[0] if first else row.at,
                    replace(first[1], verdict=stall.verdict, node=stall.node) if first else stall,
                )
    start = scenario.site.start
    return Found(replace(first[1], onset=first[1].onset - start), first[0] - start) if first else Found(None, 0)


def _lives(scenario: Scenario, window: StorageWindow) -> list[tuple[int, int]]:
    """(first row that it tells of, row after the last) of each bot; a restarted one reads everything before again."""
    cuts = [round((at) / int(window.times[1] - window.times[0])) for at in scenario.restarts]
    edges = [0, *cuts, len(window.times)]
    return list(zip(edges, edges[1:], strict=False))


def is_right(scenario: Scenario, found: Found) -> bool:
    if scenario.expected is None or found.stall is None:
        return scenario.expected is None and found.stall is None
    told = (found.stall.rule, found.stall.verdict, found.stall.node)
    return told == scenario.expected and found.stall.onset >= scenario.onset - 2 * scenario.site.scrape


def storage(
    say: Callable[[str], None] = lambda text: None, scenarios: Sequence[Scenario] = SCENARIOS
) -> dict[str, float]:
    """onset_intervals: the longest time from the onset to the row that shows it, in scrape intervals; the message adds
    the ingest lag and at most one step."""
    n = numbers()
    right, opened, waits = 0, 0, [0.0]
    for scenario in scenarios:
        found = watch(scenario, n)
        right += is_right(scenario, found)
        opened += scenario.expected is None and found.stall is not None
        if scenario.expected and found.stall:
            waits.append((found.at - scenario.onset) / scenario.site.scrape)
        say(f"  {scenario.name}: {found.stall.rule + ' ' + found.stall.verdict if found.stall else 'silent'}")
    return {
        "scenarios": len(scenarios),
        "right": right,
        "silent_opened": opened,
        "onset_intervals": round(max(waits), 2),
    }


__all__ = ["SCENARIOS", "SILENT", "STALLS", "Scenario", "StorageWatch", "is_right", "storage", "watch"]
