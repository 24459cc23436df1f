"""The jobs' own logs: followed from where they were left, judged once a job has ended or hangs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, tzinfo
from threading import Lock
from typing import Any

from bot.errors import SourceError
from bot.model import Job, JobNote, LogGrowth, Mark
from bot.policy import Policy
from bot.ports import JobPlace
from bot.signals.job_growth import Growth
from bot.signals.job_lines import JobLines, Work
from bot.signals.job_verdict import verdict
from bot.sources.paths import SessionName, places
from bot.sources.reader import Reader, data_of, mounts, storage_of

SIGNAL = "job_log_node"
TAIL = 256 * 1024  # bytes of a file per look: some 2,000 lines, more than the last words of a thousand ranks
LITTLE = 64 * 1024  # the same of a log that nothing calls for
FILES = 4  # of one job: its output, its errors, and what lies beside them
JOBS = 16  # logs per look: 0.3 s of reading lines each at worst, and a tick is 15 s
EVERY = 60  # s between looks at a log that nothing calls for: whether it grows, and ranks and nodes for later
STILL = 3  # looks at a job that ended without anything new: its last lines have arrived
LATE = 120  # s before an attempt's start that its lines may tell: clocks differ
KEPT = 24 * 3600  # s that a mark can be asked for


@dataclass(slots=True)
class _Followed:
    """One attempt's log. known: path → [inode, offset, seam], as the child wants it. still: looks in a row without
    anything new since it is due."""

    attempt: str
    lines: JobLines
    known: dict[str, list[int]] = field(default_factory=dict)
    looked: int | None = None
    written: int | None = None
    due: bool = False
    still: int = 0
    problem: str = ""
    growth: Growth = field(default_factory=Growth)


class JobLog:
    """Implements ports.JobLogSource and ports.MarkSource. zones: the site's first. wanted: the logs to follow; it is
    asked by `marks`, which looks and then tells the nodes that the logs give reason to look at."""

    name = "job log"
    signals: Collection[str] = (SIGNAL,)

    def __init__(
        self,
        reader: Reader,
        zones: Sequence[tzinfo] = (UTC,),
        wanted: Callable[[], Mapping[str, JobPlace]] = dict,
        mounts: Callable[[], Sequence[str]] = mounts,
    ) -> None:
        self._reader = reader
        self._zones = tuple(dict.fromkeys((*zones, UTC)))
        self._wanted = wanted
        self._mounts = mounts
        self._followed: dict[str, _Followed] = {}
        self._marks: dict[tuple[str, str, str], Mark] = {}
        self._lock = Lock()

    # -- the ports -----------------------------------------------------------------------------------------------------

    def marks(self, since: int, now: int, nodes: Collection[str]) -> Sequence[Mark]:
        self.notes(now, self._wanted())
        with self._lock:
            told = [mark for mark in self._marks.values() if since <= mark.at <= now]
        return [replace(mark, known=mark.node in nodes) for mark in told]

    def notes(self, now: int, jobs: Mapping[str, JobPlace]) -> Sequence[JobNote]:
        with self._lock:
            self._follow(now, jobs)
            found = [note for job, place in jobs.items() if place.due and (note := self._note(now, job, place))]
            self._remember(now, jobs, found)
            return found

    def problems(self) -> Mapping[str, str]:
        """Job id → why its log could not be read."""
        with self._lock:
            return {job: followed.problem for job, followed in self._followed.items() if followed.problem}

    def growth(self) -> Sequence[LogGrowth]:
        """How the attempts get on by their logs, as far as those could be read."""
        with self._lock:
            return [found for followed in self._followed.values() if (found := _grown(followed))]

    def work(self, job: str) -> Work | None:
        """How far a job came, as far as its log tells."""
        with self._lock:
            return self._followed[job].lines.work if job in self._followed else None

    # -- following -----------------------------------------------------------------------------------------------------

    def _follow(self, now: int, jobs: Mapping[str, JobPlace]) -> None:
        self._followed = {job: f for job, f in self._followed.items() if job in jobs}
        for job, place in jobs.items():
            known = self._followed.get(job)
            if known is None or known.attempt != place.attempt:
                known = self._followed[job] = self._begun(now, place, known)
            if place.due != known.due:
                known.due, known.still = place.due, 0
        due = [job for job in jobs if self._is_due(now, job, jobs[job])]
        due.sort(key=lambda job: (not jobs[job].due, self._followed[job].looked or 0))
        by_storage: dict[str, list[str]] = {}
        table = self._mounts() if due else ()
        for job in due[:JOBS]:
            by_storage.setdefault(storage_of(jobs[job].path, table), []).append(job)
        for storage, mine in by_storage.items():
            self._ask(now, storage, {job: jobs[job] for job in mine})

    def _begun(self, now: int, place: JobPlace, before: _Followed | None) -> _Followed:
        """A new attempt that writes on in the same file begins where the last one was left."""
        since = place.start - LATE if place.start is not None else None
        lines = JobLines(now, self._zones, place.nodes, place.ranks, since)
        if before is None:
            return _Followed(place.attempt, lines)
        return _Followed(place.attempt, lines, dict(before.known), growth=before.growth.next())

    def _is_due(self, now: int, job: str, place: JobPlace) -> bool:
        followed = self._followed[job]
        if followed.looked is None or (place.due and followed.still < STILL):
            return followed.looked != now
        return now - followed.looked >= EVERY

    def _ask(self, now: int, storage: str, jobs: Mapping[str, JobPlace]) -> None:
        questions = [
            {
                "verb": "tail",
                "path": place.path,
                "known": self._followed[job].known,
                "newest": FILES,
                "limit": TAIL if place.due else LITTLE,
            }
            for job, place in jobs.items()
        ]
        try:
            answers = self._reader.ask(storage, questions)
        except SourceError as error:
            for job in jobs:
                self._followed[job].problem = error.message
            return
        for job, answer in zip(jobs, answers, strict=True):
            self._take(now, self._followed[job], answer)

    def _take(self, now: int, followed: _Followed, answer: Mapping[str, Any] | None) -> None:
        if answer is None:
            followed.problem = "the storage stopped answering before its turn"
            return
        before, followed.looked = followed.looked, now
        followed.problem = answer.get("error") or ("" if answer["files"] else "no such file")
        files = answer.get("files", ())
        fresh = any(file["size"] > file["begin"] for file in files)
        for file in reversed(files):  # the one written last is read last
            self._read(followed, file)
        if fresh and followed.written is not None:  # their clock may be another one
            at = min(now, max(followed.written, before or 0))
            followed.growth.wrote(at, followed.lines.work.step)
        followed.still = 0 if fresh else followed.still + 1
        if followed.still:
            followed.lines.flush()

    def _read(self, followed: _Followed, file: Mapping[str, Any]) -> None:
        path, begin, data = file["path"], file["begin"], data_of(file)
        expected = 0 if file["fresh"] else followed.known[path][1]
        if file["fresh"]:
            followed.lines.flush()  # half a line of the file before it
        if begin != expected:  # the middle was left out, and the first line is cut
            data = data.partition(b"\n")[2]
        followed.known[path] = [file["inode"], begin + len(data_of(file)), file["seam"]]
        followed.written = max(followed.written or 0, int(file["mtime"]))
        if data:
            followed.lines.feed(data, path, int(file["mtime"]))

    # -- telling -------------------------------------------------------------------------------------------------------

    def _note(self, now: int, job: str, place: JobPlace) -> JobNote | None:
        followed = self._followed[job]
        found = verdict(followed.lines)
        if found is None:
            return None
        at = found.at if found.at is not None else followed.written
        return JobNote(
            job=job,
            at=min(now, at if at is not None else now),
            text="\n".join((found.text, *found.lines)),
            node=found.node or "",
            rank=found.rank,
            kind=found.kind,
            since=found.since,
            hint=found.hint,
            suspects=found.suspects,
        )

    def _remember(self, now: int, jobs: Mapping[str, JobPlace], notes: Iterable[JobNote]) -> None:
        """What was told of an attempt is told again when its next one runs; a better verdict replaces it."""
        told = {note.job: note for note in notes}
        judged = {(job, jobs[job].attempt) for job in told}
        kept = {k: m for k, m in self._marks.items() if (k[0], k[1]) not in judged and m.at > now - KEPT}
        self._marks = kept | {
            (job, jobs[job].attempt, mark.node): mark for job, note in told.items() for mark in _marks(note)
        }


def _grown(followed: _Followed) -> LogGrowth | None:
    growth, looked = followed.growth, followed.looked
    if followed.problem or looked is None or growth.moved is None:
        return None
    return LogGrowth(followed.attempt, looked, growth.moved, growth.times, growth.longest, growth.step)


def _marks(note: JobNote) -> Iterator[Mark]:
    """Where the log cannot choose between two nodes, each is marked (Aegis, NSDI'25, isolates both), and the text says
    so."""
    for node in note.suspects:
        text = f"job {note.job}: {note.text.splitlines()[0]}"
        yield Mark(note.at, node, SIGNAL, text=text, provenance="claimed")


def job_places(
    jobs: Iterable[Job], policy: Policy, session: SessionName, hanging: Collection[str] = ()
) -> dict[str, JobPlace]:
    """The logs to follow: of jobs under care whose rule names one. hanging: jobs that make no progress."""
    found = {}
    for job, (path, _, known) in places(jobs, policy, session, lambda rule: rule.log).items():
        attempt = next((a for a in reversed(known.attempts) if a.started), None)
        if attempt:
            ranks = known.node_count * known.gpus_per_node or None
            due = not attempt.alive or job in hanging
            found[job] = JobPlace(path, attempt.id, due, attempt.nodes, attempt.start, ranks)
    return found
