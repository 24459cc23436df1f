"""The log of a training job, line by line → what it tells of a failure: who, where, what, since when. Pure.

Several writers share such a log, so lines come interleaved, cut and out of order, with colours and progress bars.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, tzinfo

from bot.signals import job_kinds as k
from bot.signals.job_crew import Crew, Speaker, numbers
from bot.signals.job_times import when, zone_of

HALF = 8 * 1024  # a line over 16 KiB keeps its two ends: a progress bar without a line's end, with an error behind it
SHOWN = 300  # characters of a line for people
MOST = 2000  # findings kept: the first ones count, and a thousand ranks may all say the same
# A step this long (s) after a line says that the run went on. A step under way when the line was written may still end.
WENT_ON = 120
# As many bytes of steps say so where no times are told: Python keeps up to 8 KiB of output back, and writes them when
# it ends, behind the error.
WENT_ON_BYTES = 16 * 1024
CODES = {-7: "bus_error", -11: "crash", -15: "killed"}  # how torchrun tells a signal


@dataclass(frozen=True, slots=True)
class JobFinding:
    """What one line tells. at: Unix seconds by the line itself, None where it tells none. rank: global. ran_for: s that
    the collective had been waiting. first: the log itself names it as the first failure. local: rank on its node."""

    at: int | None
    kind: str
    rank: int | None = None
    node: str | None = None
    text: str = ""
    ran_for: float | None = None
    first: bool = False
    local: int | None = None

    @property
    def began(self) -> int | None:
        """When the trouble began: the wait is older than the line."""
        return None if self.at is None else self.at - int(self.ran_for or 0)


@dataclass(frozen=True, slots=True)
class Work:
    """How far a run came, as far as its log tells. saving: a save had begun and not ended."""

    step: int | None = None
    step_at: int | None = None
    saved_step: int | None = None
    saved_at: int | None = None
    saving: bool = False


@dataclass(slots=True)
class _Note:
    """A finding with what it is judged by later. worked: bytes of steps before it."""

    finding: JobFinding
    task: int | None
    worked: int


@dataclass(slots=True)
class _Stream:
    """One file's unfinished business: half a line, and a block of torchrun's report."""

    rest: bytes = b""
    root: bool = False
    block: dict[str, str] = field(default_factory=dict)
    tracing: set[tuple[int | None, int | None]] = field(default_factory=set)


class JobLines:
    """Fed with the bytes of one attempt's log; `findings` and `work` tell what is known by then.

    near: about now (Unix seconds), which tells the year where lines do not. zones: in which the times may be, the
    site's first. nodes: the job's, to know a host's name by. world: ranks of the job, where known. since: lines that
    tell an earlier time are another attempt's.
    """

    def __init__(
        self,
        near: int,
        zones: Sequence[tzinfo] = (UTC,),
        nodes: Collection[str] = (),
        world: int | None = None,
        since: int | None = None,
    ) -> None:
        self.work = Work()
        self.crew = Crew(nodes, world)
        self._near = near
        self._since = since
        self._zones = tuple(zones)
        self._zone: tzinfo = self._zones[0]
        self._streams: dict[str, _Stream] = {}
        self._notes: dict[tuple[object, ...], _Note] = {}
        self._worked = 0
        self._worked_at: int | None = None

    # -- in --------------------------------------------------------------------------------------------------------

    def feed(self, data: bytes, stream: str = "", written: int | None = None) -> None:
        """More bytes of a file, cut anywhere. written: when the file was last written (Unix seconds)."""
        state = self._streams.setdefault(stream, _Stream())
        *whole, rest = re.split(rb"[\r\n]+", state.rest + data)
        state.rest = _cut(rest)
        lines = [part for line in whole for part in _parts(line)]
        if written is not None:
            self._near = written
            self._zone = zone_of(reversed(lines[-200:]), written, self._zones)
        for line in lines:
            self._line(state, line)

    def flush(self) -> None:
        """What has no line's end yet counts as a line: nothing more was written."""
        for name, state in self._streams.items():
            if state.rest:
                self.feed(b"\n", name)
            self._end_block(state)

    # -- out -------------------------------------------------------------------------------------------------------

    def findings(self) -> tuple[JobFinding, ...]:
        """In the order of the log, without those after which the run went on."""
        return tuple(self._resolved(note) for note in self._notes.values() if not self._past(note))

    def _past(self, note: _Note) -> bool:
        at = note.finding.at
        return self._went_on(note) or (self._since is not None and at is not None and at < self._since)

    def _resolved(self, note: _Note) -> JobFinding:
        found = note.finding
        rank = found.rank if found.rank is not None or self.crew.torchrun else note.task
        return replace(
            found, rank=rank, node=found.node or self.crew.node_of(rank) or self.crew.node_of_task(note.task)
        )

    def _went_on(self, note: _Note) -> bool:
        if note.finding.kind == "nan":  # a run goes on with it; it is over when a loss is a number again
            return False
        if note.finding.at is not None and self._worked_at is not None:
            return self._worked_at > note.finding.at + WENT_ON
        return self._worked - note.worked > WENT_ON_BYTES

    # -- one line --------------------------------------------------------------------------------------------------

    def _line(self, state: _Stream, line: str) -> None:
        label = k.LABEL.match(line)
        task = int(label["task"]) if label else None
        text = line[label.end() :] if label else line
        if self._block(state, _body(text)):
            return
        low = text.casefold()
        self._progress(text, low)
        if "frame #" in low or not any(word in low for word in k.WORDS):  # a stack tells nothing that its head does not
            return
        who = self.crew.speaker(text, task)
        self.crew.learn(text, who)
        for kind, finding in self._told(state, text, who):
            self._note(kind, finding, who.task)

    def _told(self, state: _Stream, text: str, who: Speaker) -> Iterator[tuple[str, JobFinding]]:
        body = _body(text)
        if k.TRACEBACK.search(body):
            state.tracing.add((who.task, who.rank))
            return
        if lagging := k.LAGGING.search(body):
            for rank in numbers(lagging["ranks"] or lagging["missing"])[:MOST]:
                yield "desync", JobFinding(self._when(text), "desync", rank, None, _shown(text))
            return
        kind = _kind(body)
        if kind == "python_error" and not _uncaught(state, body, who):
            return
        if kind:
            yield kind, self._finding(kind, text, body, who)
        elif _no_number(body):
            yield "nan", JobFinding(self._when(text), "nan", who.rank, who.node, _shown(text))

    def _finding(self, kind: str, text: str, body: str, who: Speaker) -> JobFinding:
        node, rank, local = who.node, who.rank, who.local
        if srun := k.SRUN.search(body):
            node, rank = self.crew.srun(srun["hosts"], srun["tasks"])
            kind = "killed" if kind == "exit" and k.STOPPED.search(srun["how"]) else kind
        elif failed := k.FAILED_NODE.search(body):
            node = self.crew.name(failed["host"])
        elif elastic := k.ELASTIC.search(body):
            self.crew.torchrun, local = True, int(elastic["local"])
            kind = CODES.get(int(elastic["code"]), kind)
        elif kind == "told" and (by := k.TOLD_BY.search(body)):
            self.crew.ranks.add(int(by["rank"]))
        elif kind not in ("network", "cancelled"):  # there, the other side is named
            node = node or self.crew.named(body)
        waited = k.RAN_FOR.search(body) or (kind == "nccl_timeout" and k.TIMEOUT.search(body)) or None
        ran_for = int(waited["ms"]) / 1000 if waited else None
        return JobFinding(self._when(text), kind, rank, node, _shown(text), ran_for, local=local)

    def _when(self, text: str) -> int | None:
        return when(text, self._near, self._zone)

    def _note(self, kind: str, finding: JobFinding, task: int | None) -> None:
        key = (finding.kind, finding.rank, finding.local if finding.rank is None else None, finding.node, task)
        known = self._notes.get(key)
        if known is not None and self._past(known):
            del self._notes[key]  # what is past is told anew
        if len(self._notes) < MOST:
            self._notes.setdefault(key, _Note(finding, task, self._worked))

    # -- progress ----------------------------------------------------------------------------------------------------

    def _progress(self, text: str, low: str) -> None:
        if "sav" in low or "checkpoint" in low:
            self._save(text)
        if not (found := k.STEP.search(text)) or not k.AT_WORK.search(text):
            return
        step, at = int(found["step"] or found["of"]), self._when(text)
        self._worked += len(text)
        if at is not None:
            self._worked_at = max(self._worked_at or at, at)
        self.work = replace(self.work, step=step, step_at=at, saving=False)
        if k.LOSS.search(text) and not _no_number(text):  # what was NaN is over
            self._notes = {key: note for key, note in self._notes.items() if key[0] != "nan"}

    def _save(self, text: str) -> None:
        number = k.NUMBER.search(text)
        if k.SAVED.search(text):
            step = int(number["step"]) if number else self.work.step
            self.work = replace(self.work, saved_step=step, saved_at=self._when(text), saving=False)
        elif k.SAVING.search(text):
            self.work = replace(self.work, saving=True)

    # -- torchrun's report -------------------------------------------------------------------------------------------

    def _block(self, state: _Stream, body: str) -> bool:
        """A line of the report that torchrun ends with; one finding per failed rank."""
        if found := k.FIELD.match(body):
            state.block[found["key"]] = found["value"].strip()
            return True
        if state.block and not body.lstrip().startswith("error_file"):
            self._end_block(state)
        if "first observed failure" in body:
            state.root, self.crew.torchrun = True, True
            return True
        if body.startswith("Failures:"):
            state.root = False
            return True
        return False

    def _end_block(self, state: _Stream) -> None:
        block, state.block = state.block, {}
        rank, code = _first(block.get("rank", "")), _first(block.get("exitcode", ""))
        if rank is None or code is None:
            return
        node = self.crew.name(block["host"]) if block.get("host") else None
        if node:
            self.crew.ran(rank, node)
        self.crew.ranks.add(rank)
        why = block.get("traceback", "")
        kind = CODES.get(code) or _kind(why) or "exit"
        kind = "killed" if kind == "exit" and k.STOPPED.search(why) else kind
        text = f"rank {rank} on {node or 'an unknown host'} ended with exit code {code}"
        told = f"{text}: {why}" if why and "To enable traceback" not in why else text
        at = self._when(block.get("time", ""))
        self._note(kind, JobFinding(at, kind, rank, node, _shown(told), None, state.root), None)


def _parts(line: bytes) -> list[str]:
    text = k.ANSI.sub("", _cut(line).decode("utf-8", "replace")).replace("\x00", "").rstrip()
    return [part for part in k.TOGETHER.split(text) if part] if text.strip() else []


def _cut(line: bytes) -> bytes:
    return line if len(line) <= 2 * HALF else line[:HALF] + b" ... " + line[-HALF:]


def _body(text: str) -> str:
    """Without the prefixes that tell who wrote it."""
    while found := k.PREFIX.match(text):
        text = text[found.end() :]
    return text


def _shown(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= SHOWN else text[: SHOWN - 1] + "…"


def _kind(body: str) -> str:
    low = body.casefold()
    return next((kind for kind, form in k.FORMS if form.search(low)), "")


def _first(text: str) -> int | None:
    found = re.match(r"-?\d{1,12}", text)
    return int(found[0]) if found else None


def _no_number(text: str) -> bool:
    """It tells a loss, and none that is a number: a progress bar may show one that is not measured beside one that is.
    A best loss begins at infinity."""
    told = [found for found in k.LOSS.finditer(text) if not found["name"].casefold().startswith(("best", "min"))]
    return bool(told) and all(found["value"][0] in "niNI" for found in told)


def _uncaught(state: _Stream, body: str, who: Speaker) -> bool:
    """It ends a traceback, and is not a launcher's word for a failure below it."""
    seen = (who.task, who.rank) in state.tracing
    return seen and not any(name in body.split(":", 1)[0] for name in k.LAUNCHERS)
