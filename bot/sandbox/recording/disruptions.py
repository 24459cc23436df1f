"""What ends an attempt of the big run without any hardware at fault."""

from __future__ import annotations

from collections.abc import Sequence

from bot.sandbox.recording.failures import DCGM_BLANK
from bot.sandbox.recording.fleet import GPUS, MINUTE
from bot.sandbox.recording.story import Ending, Scene, Story
from bot.sandbox.recording.truth import ApplicationFault


def application(s: Scene) -> Ending:
    """A bug in the program: Xid 13, 31 or 43, often on several GPUs, and 45 on those that are cleaned up."""
    code = s.dice.choice((13, 31, 31, 43))
    gpu = _rank(s)
    where = [gpu, *s.dice.sample([g for n in s.nodes for g in s.gpus(n)], s.dice.choice((0, 0, 1, 3, 7)))]
    stops = s.at + s.dice.randint(5, 60)
    ends = stops + s.dice.randint(15, 90)
    for column in dict.fromkeys(where):
        s.effects.xid(column, s.at + s.dice.randint(0, 40), code)
        _note(s, column, code, ends)
    if s.dice.random() < 0.4:
        for column in s.gpus(gpu // GPUS):
            if column not in where:
                s.effects.xid(column, s.at + s.dice.randint(40, 70), 45)
                _note(s, column, 45, ends)
    _core_dumps(s, gpu // GPUS, stops)
    if s.dice.random() < 0.2:  # after Xid 31 the profiler says nothing until its exporter begins anew (DCGM 202)
        until = ends + s.story.hours(1, 9)
        s.effects.hold("DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", s.gpus(gpu // GPUS), s.at + 60, until, DCGM_BLANK)
        s.effects.restart("exporter", gpu // GPUS, until)
    return Ending(stops, ends)


def _rank(s: Scene) -> int:
    """A bug likes the same rank: now and then it strikes where it struck last."""
    past = s.story.application
    if past and s.dice.random() < 0.3:
        node = s.story.fleet.names.index(past[-1].node)
        if node in s.nodes:
            return node * GPUS + past[-1].gpu
    return s.dice.choice(s.gpus())


def _note(s: Scene, column: int, code: int, ends: int) -> None:
    name = s.story.fleet.names[column // GPUS]
    s.story.application.append(ApplicationFault(name, column % GPUS, code, s.at, ends))


def _core_dumps(s: Scene, node: int, stops: int) -> None:
    """The first rank's, or everybody's, go to the local disk."""
    nodes = s.dice.choice(([node], [node], s.nodes, []))
    s.effects.change("node_vmstat_pgpgout", nodes, stops, stops + s.story.minutes(1, 5), "scale", s.dice.uniform(5, 40))


def hang(s: Scene) -> Ending:
    """All ranks wait for each other: a bug in the program."""
    ends = s.at + s.story.minutes(12, 45)
    s.story.noted("software_hang", s.nodes, s.at, ends)
    return Ending(s.at, ends)


def owner(s: Scene) -> Ending:
    """Done, or the owner wants something else: the next session begins later."""
    return Ending(s.at, s.at + s.dice.randint(5, 40), s.dice.choice(("COMPLETED", "CANCELLED")), new_session=True)


def crash(s: Scene) -> Ending:
    """The machine stops, exporters and all; the scheduler notices, and it is back after a while."""
    story, ends = s.story, s.at + s.story.minutes(3, 6)
    off = s.story.minutes(15, 90)
    s.effects.reboot(s.node, s.at, off)
    story.noted("node_crash", [s.node], s.at, s.at + off)
    return Ending(s.at, ends, "NODE_FAIL", ((s.node, s.at + off + story.minutes(20, 90)),))


def maintenance(s: Scene) -> Ending:
    """A group of neighbours is taken away as planned; the job was stopped before."""
    story, dice = s.story, s.dice
    size = max(1, min(len(story.fleet) // 6, 12))
    first = dice.randrange(len(story.fleet) - size + 1)
    group, begins = range(first, first + size), s.at + 5 * MINUTE
    until = begins + story.hours(1.5, 5)
    for node in group:
        _serviced(story, node, begins + story.minutes(0, 20), until)
    story.noted("maintenance", group, s.at, until + 10 * MINUTE)
    away = tuple((node, until + story.minutes(10, 30)) for node in group)
    return Ending(s.at, s.at + dice.randint(20, 120), "CANCELLED", away)


def _serviced(story: Story, node: int, start: int, until: int) -> None:
    """Off for most of the time, or new firmware with a reboot or two and a driver that is reloaded."""
    if story.dice.random() < 0.5:
        story.effects.reboot(node, start, until - start - story.minutes(1, 10))
        return
    at = start
    for _ in range(story.dice.randint(1, 2)):
        off = story.minutes(5, 12)
        story.effects.reboot(node, at, off)
        at += off + story.minutes(10, 30)
    if at < until:
        reload_driver(story, node, at)


def reload_driver(story: Story, node: int, at: int) -> None:
    """The GPUs are away for a moment while the exporter answers, or it does not answer either."""
    lasts = story.dice.randint(60, 200)
    if story.dice.random() < 0.5:
        story.effects.lose(range(node * GPUS, node * GPUS + GPUS), at, at + lasts)
    else:
        story.effects.silence("dcgm", [node], at, at + lasts)
    story.effects.restart("driver", node, at + lasts)
    story.noted("driver_restart", [node], at, at + lasts)


def between(story: Story, nodes: Sequence[int], ended: int, starts: int) -> int:
    """While no job runs some nodes are rebooted or get their driver reloaded. Returns when the next job starts."""
    if story.dice.random() < 0.5:
        return starts
    for node in story.dice.sample(nodes, min(len(nodes), story.dice.randint(1, 3))):
        at = ended + story.minutes(1, 3)
        if story.dice.random() < 0.5:
            reload_driver(story, node, at)
            continue
        off = story.minutes(4, 9)
        story.effects.reboot(node, at, off)
        story.noted("reboot", [node], at, at + off)
    return max(starts, ended + 16 * MINUTE)


HARMLESS = frozenset({application, hang, owner, maintenance})
