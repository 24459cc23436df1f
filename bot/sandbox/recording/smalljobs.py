"""Small jobs on nodes that the big run leaves free."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from bot.sandbox.recording.fleet import HOUR, MINUTE
from bot.sandbox.recording.phases import Phase
from bot.sandbox.recording.story import Story

SHORTEST = 30 * MINUTE  # a free hour that is shorter stays free


def play(story: Story) -> None:
    """After the big run: its nodes are known then."""
    session = 0
    taken: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for node, start, end in story.taken:
        taken[node].append((start, end))
    for node in range(len(story.fleet)):
        for start, end in _free(story, sorted(taken[node])):
            at = start + story.minutes(3, 40)
            while at < end - SHORTEST:
                session += 1
                at = _job(story, f"small-{session}", node, at, end) + story.minutes(2, 90)


def _free(story: Story, taken: Sequence[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    at = story.start
    for start, end in taken:
        if start > at:
            yield at, start
        at = max(at, end)
    if at < story.end:
        yield at, story.end


def _job(story: Story, session: str, node: int, at: int, limit: int) -> int:
    """Bursts of work and waiting; preempted where the big run wants the node."""
    wanted = at + round(story.dice.expovariate(1 / (3 * HOUR))) + 10 * MINUTE
    ends = min(wanted, limit)
    state = story.dice.choice(("COMPLETED", "COMPLETED", "FAILED", "CANCELLED")) if wanted <= limit else "PREEMPTED"
    if ends >= story.end:
        ends = story.end + 1
    begun = min(at + story.minutes(1, 4), ends)
    story.doing(Phase.START, [node], at, begun)
    while begun < ends:
        until = min(begun + story.minutes(5, 60), ends)
        story.doing(story.dice.choice((Phase.LIGHT, Phase.BUSY, Phase.BUSY)), [node], begun, until)
        begun = until
    story.ran(session, story.next_job(), [node], at, ends, state)
    return ends
