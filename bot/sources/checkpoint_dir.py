"""Completed checkpoints from the directory that a trainer saves to. Never one that is half written.

A save counts when its trainer says so: by a file that it writes last, beside the checkpoints (`latest`) or in each
(`.metadata`), or by giving the checkpoint its name once it is whole. What says neither is not measured.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from bot.errors import SourceError
from bot.model import Checkpoint, Job, JobSave, KnownSave
from bot.policy import Policy
from bot.sources.paths import SessionName, places
from bot.sources.reader import SOURCE, Reader, mounts, storage_of

# Written beside the checkpoints once one is whole: DeepSpeed, Megatron-LM, scripts that follow their custom.
TRACKERS = ("latest", "latest_checkpointed_iteration.txt", "*.done", "*.DONE", "*.completed", "*.COMPLETED")
# Written last within one: torch's distributed checkpoints, scripts.
MARKS = (".metadata", "COMPLETED", "DONE", "_SUCCESS", ".complete", "*.done")
# global_step1200, iter_0001200, step=1200.ckpt, epoch=3-step=1200.ckpt, checkpoint-1200, step_1200, ckpt-1200, 1200
STEPS = (
    re.compile(r"(?:step|iter|iteration)s?[=_.-]?0*(?P<step>\d{1,15})(?!\d)", re.IGNORECASE),
    re.compile(r"(?:checkpoint|ckpt)[=_.-]?0*(?P<step>\d{1,15})(?!\d)", re.IGNORECASE),
    re.compile(r"^0*(?P<step>\d{1,15})$"),
)
NAMED = r"(?i)(?:step|iter|iteration|checkpoint|ckpt)s?[=_.-]?\d|^\d+$"
UNFINISHED = re.compile(
    r"(?<![a-z])(?:te?mp|partial|incomplete|in_?progress|unfinished|staging)(?![a-z])|~$|^\.", re.IGNORECASE
)
RENAME = "rename"
ENTRIES = 20_000  # names looked at in a directory: ten files a rank of a run on 2,000 GPUs, listed in about a second
NEWEST = 8  # checkpoints looked into, the last changed first: only the newest whole one matters

MOST_AHEAD = 10_000  # saves remembered whose time lies ahead of ours


@dataclass(frozen=True, slots=True)
class DirectoryPlace:
    """Where a run saves. path: may be a glob. marker: as CheckpointRule has it."""

    path: str
    marker: str = ""


@dataclass(frozen=True, slots=True)
class Save:
    """A completed save as its directory shows it. started: when its first file was there; None where only the end is
    told. completed: by the file server's clock. bytes, files: None where the checkpoint is gone again. by: what says
    that it is whole."""

    job: str
    path: str
    step: int | None
    started: int | None
    completed: int
    bytes: int | None = None
    files: int | None = None
    by: str = ""


@dataclass
class DirectoryCheckpoints:
    """Implements ports.CheckpointSource. places: job id → where it saves; jobs without one are not measured."""

    reader: Reader
    places: Callable[[], Mapping[str, DirectoryPlace]]
    mounts: Callable[[], Sequence[str]] = mounts
    problem: str = ""  # what could not be read last time
    absent: Collection[str] = ()  # jobs whose directory was not there
    _told: tuple[JobSave, ...] = ()
    _seen: dict[tuple[str, str, int], int] = field(default_factory=dict)

    def checkpoints(self, at: int, jobs: Mapping[str, Sequence[str]]) -> Sequence[Checkpoint]:
        """Raises SourceError when no storage answered; where some did, `problem` tells of the others."""
        self._told = ()
        all_saves = self.saves(at, jobs)
        self._told = tuple(JobSave(s.job, _known(s)) for found in all_saves.values() for s in found)
        newest = [found[-1] for found in all_saves.values() if found]
        return [Checkpoint(s.job, s.step, s.started, s.completed) for s in newest]

    def told(self) -> Sequence[JobSave]:
        """All that still show."""
        return self._told

    def saves(self, at: int, jobs: Iterable[str]) -> dict[str, list[Save]]:
        """Job id → completed saves that still show, in the order of their completion."""
        mine = set(jobs)
        wanted = {job: place for job, place in self.places().items() if job in mine}
        found: dict[str, list[Save]] = {}
        errors: list[SourceError] = []
        problems: list[str] = []
        absent: set[str] = set()
        for storage, asked in _by_storage(wanted, self.mounts()).items():
            try:
                answers = self.reader.ask(storage, [_question(wanted[job]) for job in asked])
            except SourceError as error:
                errors.append(error)
                continue
            for job, answer in zip(asked, answers, strict=True):
                problems += _problem(wanted[job], answer)
                absent |= {job} if answer and answer.get("missing") else set()
                found[job] = self._judged(at, job, wanted[job], answer)
        self.absent = absent
        self.problem = "; ".join(dict.fromkeys([*(_words(error) for error in errors), *problems]))
        if errors and not found:
            raise errors[0]
        return found

    def _judged(self, at: int, job: str, place: DirectoryPlace, answer: Mapping[str, Any] | None) -> list[Save]:
        directories = (answer or {}).get("directories", ())
        whole = [save for directory in directories for save in _whole(job, place, directory)]
        return sorted((self._timed(at, save) for save in whole), key=lambda s: (s.completed, s.step or 0))

    def _timed(self, at: int, save: Save) -> Save:
        """A file server's clock may be ahead of ours: nothing was completed after it was first seen."""
        if save.completed <= at:
            return save
        if len(self._seen) > MOST_AHEAD:
            self._seen.clear()
        seen = self._seen.setdefault((save.job, save.path, save.completed), at)
        ahead = save.completed - seen
        return replace(save, completed=seen, started=save.started - ahead if save.started is not None else None)


def _known(s: Save) -> KnownSave:
    return KnownSave(s.started, s.completed, s.step, s.bytes, completed=True, sources=("directory",))


def _by_storage(wanted: Mapping[str, DirectoryPlace], table: Sequence[str]) -> dict[str, list[str]]:
    storages: dict[str, list[str]] = {}
    for job, place in wanted.items():
        storages.setdefault(storage_of(place.path, table), []).append(job)
    return storages


def _question(place: DirectoryPlace) -> dict[str, Any]:
    own = [place.marker] if place.marker and place.marker != RENAME else None
    return {
        "verb": "saves",
        "path": place.path,
        "steps": NAMED,
        "trackers": own or list(TRACKERS),
        "marks": own or list(MARKS),
        "entries": ENTRIES,
        "newest": NEWEST,
    }


def _problem(place: DirectoryPlace, answer: Mapping[str, Any] | None) -> Iterator[str]:
    """A directory that is not there yet is no problem: the first save makes it."""
    if answer is None:
        yield f"{place.path}: its storage stopped answering before its turn"
    elif "error" in answer and not answer["missing"]:
        yield str(answer["error"])


def _words(error: SourceError) -> str:
    return error.message.removeprefix(f"{SOURCE}: ")


# -- which are whole ---------------------------------------------------------------------------------------------------


def _whole(job: str, place: DirectoryPlace, directory: Mapping[str, Any]) -> Iterator[Save]:
    """What a file beside them names decides where there is one: the trainer itself goes by it."""
    path, saves = directory["path"], [s for s in directory["saves"] if not UNFINISHED.search(s["name"])]
    told = list(_tracked(job, path, directory["trackers"], saves))
    if told and place.marker != RENAME:
        yield from told
        return
    for save in saves:
        completed, by = _completed(save, place.marker)
        if completed is not None:
            yield _save(job, path, save, completed, by)


def _tracked(job: str, path: str, trackers: Iterable[Mapping[str, Any]], saves: Sequence[Any]) -> Iterator[Save]:
    by_step = {step_of(save["name"]): save for save in saves}
    for tracker in trackers:
        step = step_of(tracker["text"].splitlines()[0]) if tracker["text"] else None
        step = step if step is not None else step_of(tracker["name"].rsplit(".", 1)[0])
        known = by_step.get(step) if step is not None else None
        if known:
            yield _save(job, path, known, tracker["mtime"], tracker["name"])
        elif step is not None:  # told whole, and removed since
            yield Save(job, f"{path}/{tracker['name']}", step, None, int(tracker["mtime"]), by=tracker["name"])


def _completed(save: Mapping[str, Any], marker: str) -> tuple[float | None, str]:
    """(when, what says so). With a marker of the site's nothing else counts."""
    if save["marks"]:
        last = max(save["marks"], key=lambda mark: mark["mtime"])
        return last["mtime"], last["name"]
    if save["last"] is None or marker not in ("", RENAME):
        return None, ""
    if not save["dir"]:
        return (save["last"], "its end record") if save["whole"] else (None, "")
    if marker == RENAME or save["renamed"]:
        return save["last"], RENAME
    return None, ""


def _save(job: str, path: str, save: Mapping[str, Any], completed: float, by: str) -> Save:
    first = save["first"] if save["dir"] else None
    started = int(min(first, completed)) if first is not None else None
    full = f"{path}/{save['name']}"
    return Save(job, full, step_of(save["name"]), started, int(completed), save["bytes"], save["files"], by)


def step_of(name: str) -> int | None:
    """The step in a checkpoint's name, or alone; None where it tells none."""
    name = name.strip()
    found = next((match for form in STEPS if (match := form.search(name))), None)
    return int(found["step"]) if found else None


def directory_places(jobs: Iterable[Job], policy: Policy, session: SessionName) -> dict[str, DirectoryPlace]:
    """Where the jobs under care save, by their rules."""
    found = places(jobs, policy, session, lambda rule: rule.checkpoint.directory)
    return {job: DirectoryPlace(path, rule.checkpoint.marker) for job, (path, rule, _) in found.items()}
