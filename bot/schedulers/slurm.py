"""Slurm behind the scheduler's port: reads with its own commands, changes nothing itself."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor

from bot.errors import AuthFailed, BadReply, SourceError, Unreachable
from bot.model import Action, Argv, Cluster, Done, Job, Next, Reservation, Unclear, Wait
from bot.schedulers import commands
from bot.schedulers.process import Finished, run
from bot.schedulers.slurm_history import Row, combine, parse_accounting
from bot.slurm_records import AGAIN, OPEN_JOB_ID, is_held, parse_jobs, parse_nodes, parse_reservations

log = logging.getLogger(__name__)
NODES = ("scontrol", "-d", "show", "node")
RESERVATIONS = ("scontrol", "show", "reservation")
QUEUE = ("squeue", "--json", "--all", "--states=all")
ACCOUNTING = ("sacct", "--json", "--duplicates", "--allusers", "--jobs")
CONFIG = ("scontrol", "show", "config")
SECONDS = {"SLURM_TIME_FORMAT": "%s"}  # scontrol's times as Unix seconds; sacct would fail on its own default times
CLOCK_SLACK = 2  # seconds between the controller's clock and ours that are not "later"


def nothing(_: Job) -> bool:
    return False


class SlurmScheduler:
    """conf: slurm.conf, else $SLURM_CONF or Slurm's own default. deadline: wall-clock seconds for each command.
    match: whether a job is one of ours; accounting is asked for those and for watched ones only."""

    def __init__(self, conf: str | None = None, deadline: float = 10, match: Callable[[Job], bool] = nothing) -> None:
        self._deadline = deadline
        self._match = match
        self._env = _environment(conf)
        self._name = ""

    def snapshot(self, now: int, watch: Collection[str] = ()) -> Cluster:
        """The cluster, at = now. Raises SourceError when nodes or queue cannot be read; reservations, accounting and
        single records that cannot are named in `unknown`. A watched job that is nowhere is absent."""
        with ThreadPoolExecutor(4) as pool:
            name = pool.submit(self.cluster_name)
            nodes, queue = pool.submit(self._ask, NODES), pool.submit(self._ask, QUEUE)
            reserved = pool.submit(self._reservations)
        found, odd_nodes = parse_nodes(nodes.result())
        live, odd_jobs = parse_jobs(queue.result())
        jobs, odd_rows = self._with_history(live, watch)
        reservations, odd_reservations = reserved.result()
        unknown = (*odd_nodes, *odd_jobs, *odd_reservations, *odd_rows)
        return Cluster(name.result(), now, found, jobs, reservations, unknown)

    def next_command(self, action: Action, cluster: Cluster) -> Next:
        return next_command(action, cluster)

    def cluster_name(self) -> str:
        if not self._name:
            found = re.search(r"^ClusterName\s*=\s*(\S+)", self._ask(CONFIG), re.M)
            if not found:
                raise BadReply("slurm", "scontrol show config names no cluster")
            self._name = found[1]
        return self._name

    def _reservations(self) -> tuple[tuple[Reservation, ...], tuple[str, ...]]:
        try:
            return parse_reservations(self._ask(RESERVATIONS))
        except SourceError as error:
            log.warning("reservations are unknown: %s", error)
            return (), ("reservations",)

    def _with_history(self, live: dict[str, Job], watch: Collection[str]) -> tuple[dict[str, Job], tuple[str, ...]]:
        """A job that never restarted has no history to ask for; one that left the queue has nothing else."""
        ours = {job.id for job in live.values() if self._match(job)} | set(watch)
        wanted = sorted(i for i in ours if i not in live or live[i].attempts[-1].ordinal)
        rows, unknown = self._history([i for i in wanted if re.fullmatch(r"\d+(?:_\d+|\+\d+)?", i)])
        joined = ((i, combine(live.get(i), rows.get(i, ()))) for i in wanted)
        return {**live, **{i: job for i, job in joined if job}}, unknown

    def _history(self, jobs: Collection[str]) -> tuple[dict[str, tuple[Row, ...]], tuple[str, ...]]:
        if not jobs:
            return {}, ()
        ids = ",".join(sorted({job.split("+")[0] for job in jobs}))
        try:
            return parse_accounting(self._ask((*ACCOUNTING, ids)))
        except SourceError as error:
            log.warning("accounting is unknown: %s", error)
            return {}, ("accounting",)

    def _ask(self, argv: tuple[str, ...]) -> str:
        try:
            done = run(argv, self._deadline, {**self._env, **(SECONDS if argv[0] == "scontrol" else {})})
        except OSError as error:
            raise Unreachable(
                "slurm", f"cannot run {argv[0]}: {error.strerror}", "install Slurm's client commands"
            ) from error
        if done.code is None:
            raise Unreachable(
                "slurm", f"{_spoken(argv)} did not answer within {self._deadline:g} s", "see `scontrol ping`"
            )
        if done.code:
            raise _failure(argv, done)
        return done.out


def _environment(conf: str | None) -> dict[str, str]:
    """Only what Slurm needs: filters such as SQUEUE_USERS must not reach it."""
    env = {"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C", "TZ": "UTC"}
    path = conf or os.environ.get("SLURM_CONF")
    return {**env, "SLURM_CONF": path} if path else env


_NO_CONTACT = (
    "unable to contact",
    "connection refused",
    "timed out",
    "connect failure",
    "unreachable",
    "communication",
)
_NO_ACCESS = ("authentication", "credential", "munge", "permission denied", "access denied", "invalid user")


def _failure(argv: tuple[str, ...], done: Finished) -> SourceError:
    said = "; ".join(line.strip() for line in done.err.splitlines() if line.strip())[:300] or f"exit {done.code}"
    message, lowered = f"{_spoken(argv)}: {said}", said.lower()
    if any(word in lowered for word in _NO_CONTACT):
        return Unreachable("slurm", message, "see `scontrol ping` and the controller's log")
    if any(word in lowered for word in _NO_ACCESS):
        return AuthFailed("slurm", message, "check munge and that this account may read all jobs (PrivateData)")
    return BadReply("slurm", message, f"run `{_spoken(argv)}` as this account")


def _spoken(argv: tuple[str, ...]) -> str:
    text = " ".join(argv)
    return text if len(text) < 60 else f"{text[:57]}..."


# -- what is still missing ------------------------------------------------------------------------


def next_command(action: Action, cluster: Cluster) -> Next:
    """Pure; holds and releases are the same everywhere, a requeue has Slurm's own traps."""
    return _requeue(action, cluster) if action.step == "requeue" else commands.next_command(action, cluster)


def _requeue(action: Action, cluster: Cluster) -> Next:
    """action.attempt = `JOB#N`: the run that shall be followed by N+1."""
    job_id, _, number = action.attempt.rpartition("#")
    if not OPEN_JOB_ID.fullmatch(job_id) or not number.isdecimal():
        return Unclear(f"{action.attempt!r} is no single job: arrays and het jobs are not requeued as a whole")
    job = cluster.jobs.get(job_id)
    if job is None or job.latest is None:
        return Unclear(f"Slurm knows no job {job_id}")
    if not job.queued:
        return Unclear(f"job {job_id} has left the queue; only its owner can submit it again")
    if job.state == "COMPLETING":
        return Wait(f"job {job_id} is still stopping")
    again = Argv("requeue", (job_id, "--restart", number))
    if job.latest.ordinal > int(number):
        return _after_requeue(action, job, again, cluster.at)
    return _blocked(job, int(number)) or again


def _after_requeue(action: Action, job: Job, again: Argv, now: int) -> Next:
    """Whose requeue it was only the gate's log can tell: ours may still lack its start."""
    if job.state != "PENDING":
        return Done(False, f"job {job.id} is {job.state}, restart {job.attempts[-1].ordinal}")
    if is_held(job):
        return Unclear(f"job {job.id} was requeued, but it is held ({job.why})")
    if job.begin is None or job.begin <= now + CLOCK_SLACK:
        return Done(False, f"job {job.id} was requeued and may start ({job.why})")
    if action.started is not None:
        return again
    return Done(False, f"job {job.id} was requeued by somebody else and starts in {job.begin - now} s")


def _blocked(job: Job, number: int) -> Unclear | None:
    ordinal = job.attempts[-1].ordinal
    if ordinal < number:
        return Unclear(f"job {job.id} is at restart {ordinal}, not {number}: Slurm lost state, or the id was reused")
    if job.state not in AGAIN:
        held = f", held ({job.why})" if is_held(job) else ""
        return Unclear(f"job {job.id} is {job.state}{held}: there is no run to repeat")
    if not job.batch:
        return Unclear(f"job {job.id} is no batch job")
    if not job.requeue:
        return Unclear(f"job {job.id} was submitted with --no-requeue")
    return None
