"""What `doctor` looks at beside the metrics: the listener, Alertmanager, and the logs and checkpoints of the site."""

from __future__ import annotations

import errno
import http.client
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from zoneinfo import ZoneInfo

from bot.app import alertmanagers
from bot.config import AlertmanagerSite, HttpSite, address, secret
from bot.doctor_site import Finding, Findings, Patient, account, fail, ok, warn
from bot.errors import SourceError, Unreachable
from bot.model import Job
from bot.naming import some
from bot.policy import SessionRule
from bot.sessions import rule_for
from bot.sources.alertmanager import Alertmanager
from bot.sources.checkpoint_dir import DirectoryCheckpoints, Save, directory_places
from bot.sources.job_log import job_places
from bot.sources.kernel_log import kernel_log
from bot.sources.kernel_log.sample import Sample, samples
from bot.sources.reader import Reader, mounts, storage_of

DAY = 86_400  # s of kernel logs that are looked at: on a healthy night the kernel may say nothing for hours
RUNS = 16  # runs whose files are looked at
HEAD = 4096  # bytes of a job's log that are read to see that it can be
SLOW = 1.0  # s; a healthy file system lists a checkpoint directory in milliseconds, and a tick reads all of them

# -- what comes in -----------------------------------------------------------------------------------------------------


def listener(p: Patient) -> Findings:
    """Raises ConfigError for a token that cannot be read."""
    site = p.site.config.http
    if site is None:
        yield ok("http: no listener")
        return
    if site.token_file:
        secret("the listener's token", site.token_file)
    yield _port(site)


def _port(site: HttpSite) -> Finding:
    host, port = address(site.listen)
    door = "needs its token" if site.token_file else "is open to everybody on this machine"
    with closing(socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)) as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            sock.bind((host, port))
        except OSError as error:
            return _taken(site) if error.errno == errno.EADDRINUSE else _unusable(site, error)
    return ok(f"http: {site.listen} is free, and {door}")


def _unusable(site: HttpSite, error: OSError) -> Finding:
    remedies = {
        errno.EADDRNOTAVAIL: "that address is none of this machine's; 0.0.0.0 is all of them",
        errno.EACCES: "ports below 1024 are root's: take a higher one",
    }
    remedy = remedies.get(error.errno or 0, "correct http.listen; host and port must be this machine's")
    return fail(f"http: cannot listen on {site.listen}: {error.strerror or error}", remedy)


def _taken(site: HttpSite) -> Finding:
    """By the bot itself, if all is well."""
    host, port = address(site.listen)
    try:
        with closing(http.client.HTTPConnection(host, port, timeout=5)) as connection:
            connection.request("GET", "/healthz")
            answer = connection.getresponse()
            name, text = answer.headers.get("Server", "").strip(), answer.read(500).decode("utf-8", "replace").strip()
    except (OSError, http.client.HTTPException):
        name, text = "", ""
    if name != "xidbot":
        return fail(f"http: {site.listen} is taken by another program", "give http.listen another port")
    if answer.status != 200:
        return warn(f"http: the bot on {site.listen} says: {text}", "its log tells why")
    return ok(f"http: the bot listens on {site.listen}")


def alertmanager(p: Patient) -> Findings:
    site = p.site.config.alertmanager
    if site is None:
        yield ok("alertmanager: none, so that nobody is paged and nothing is silenced")
        return
    for one in alertmanagers(site):
        yield from _alertmanager(one, site)


def _alertmanager(one: Alertmanager, site: AlertmanagerSite) -> Findings:
    """An empty list of alerts is taken and changes nothing; a proxy that lets us only read refuses it."""
    try:
        found = one.silences()
        if site.pages:
            one.post([])
    except SourceError as error:
        remedy = error.remedy or "check alertmanager.url, with its route prefix and without /api/v2"
        said = error.message.removeprefix(f"{error.source}: ")
        yield fail(f"alertmanager {one.url}: {said}", remedy, out_of_reach=isinstance(error, Unreachable))
        return
    for unread in found.unread:
        yield warn(f"alertmanager {one.url}: {unread}", "write that silence's expression more simply; it does not hold")
    pages = "takes pages" if site.pages else "gets no pages"
    yield ok(f"alertmanager {one.url}: {len(found.active) + len(found.unread)} active silences, {pages}")


# -- kernel logs -------------------------------------------------------------------------------------------------------


class _Nothing:
    """Where the bot was is its own; we read a day anew and keep nothing."""

    def get(self, name: str) -> str | None:
        return None

    def put(self, name: str, value: str) -> None:
        pass


def kernel_logs(p: Patient) -> Findings:
    """Raises Unreachable where their storage hangs."""
    site, config = p.site.config.logs.kernel_log, p.site.config
    if not (site.journal or site.command or site.syslog):
        yield ok("kernel logs: none, so Xids are known from the metrics alone")
        return
    log = kernel_log(
        _Nothing(),
        ZoneInfo(site.timezone or config.site.timezone),
        journal=site.journal,
        syslog=site.syslog,
        command=site.command,
        timeout=site.timeout,
        pattern=config.prometheus.node_pattern,
    )
    now = int(time.time())
    for sample in samples(log, now - DAY, now, p.nodes):
        yield from _heard(sample, bool(p.nodes))


def _heard(s: Sample, nodes_known: bool) -> Findings:
    problems, hosts = s.problems or {}, s.hosts or {}
    for place, problem in problems.items():
        what, _, remedy = problem.partition("; ")
        yield fail(f"kernel log {s.name}: {place}: {what}", remedy or f"correct logs.kernel_log.{s.name}")
    if not s.lines:
        if not problems:
            form = "in the form of syslog" if s.name == "syslog" else "an entry in JSON a line"
            yield warn(f"kernel log {s.name}: no line of the last day", f"is it still written, {form}, with its times?")
        return
    faults = list(_unlike(s, hosts, nodes_known))
    yield from faults
    if not faults and not problems:
        word = "the kernel's own word" if s.kernel else "claims"
        yield ok(f"kernel log {s.name}: {s.lines} lines of {len(hosts)} hosts in the last day, {word}")


def _unlike(s: Sample, hosts: Mapping[str, bool], nodes_known: bool) -> Findings:
    """In what its lines are not as they should be."""
    if not s.understood:
        yield fail(f"kernel log {s.name}: none of {s.lines} lines is a journal entry in JSON", "journalctl -o json")
        return
    if not s.timed:
        yield fail(
            f"kernel log {s.name}: no line tells when it was written", "keep the time stamps of journal or syslog"
        )
    if s.name != "syslog" and not s.kernel:
        yield warn(
            f"kernel log {s.name}: no entry has _TRANSPORT=kernel, so what it tells counts as a claim",
            "let the shipper keep the fields that begin with an underscore, and kernel messages",
        )
    if nodes_known and not any(hosts.values()):
        yield fail(
            f"kernel log {s.name}: its hosts are no nodes of the scheduler: {some(sorted(hosts))}",
            "prometheus.node_pattern must cut the node's name out, or name files after nodes",
        )


# -- the runs' own files -----------------------------------------------------------------------------------------------


@contextmanager
def _reader() -> Iterator[Reader]:
    reader = Reader()
    try:
        yield reader
    finally:
        reader.close()


def _name(job: str) -> str:
    return f"session-{job}"


def _running(p: Patient) -> list[Job]:
    return [job for job in p.runs if job.state == "RUNNING"][:RUNS]


def _under(p: Patient, what: str, has: bool) -> Finding | None:
    """What there is to say instead of looking."""
    if not has:
        return ok(f"{what}: no rule names any")
    return None if _running(p) else ok(f"{what}: no run to look at")


def job_logs(p: Patient) -> Findings:
    """Raises SourceError where the scheduler cannot be read."""
    early = _under(p, "job logs", any(rule.log for rule in p.site.policy.sessions))
    if early:
        yield early
        return
    places = {job: place.path for job, place in job_places(_running(p), p.site.policy, _name).items()}
    found = []
    with _reader() as reader:
        for job, path in places.items():
            if finding := _log(reader, job, path):
                yield finding
            else:
                found.append(_name(job))
    if found:
        yield ok(f"job logs: those of {some(found)} can be read")
    yield from _nowhere(p, places, "log", lambda rule: rule.log)


def _log(reader: Reader, job: str, path: str) -> Finding | None:
    question = {"verb": "tail", "path": path, "known": {}, "limit": HEAD, "newest": 1}
    try:
        (answer,) = reader.ask(storage_of(path, mounts()), [question])
    except SourceError as error:
        return fail(f"job log of {_name(job)}: {error.message}", "does its storage hang?", out_of_reach=True)
    if answer is None or "error" not in answer:
        return None
    if answer["missing"]:
        return warn(
            f"job log of {_name(job)}: {answer['error']}",
            "compare sessions.log with `scontrol show job`; $job, $name, $user and globs may stand in it",
        )
    return fail(f"job log of {_name(job)}: {answer['error']}", f"{account()} must be able to read it: a group will do")


def checkpoint_directories(p: Patient) -> Findings:
    """Raises SourceError where the scheduler cannot be read."""
    early = _under(p, "checkpoint directories", any(rule.checkpoint.directory for rule in p.site.policy.sessions))
    if early:
        yield early
        return
    places = directory_places(_running(p), p.site.policy, _name)
    with _reader() as reader:
        source = DirectoryCheckpoints(reader, lambda: places)
        for job, place in places.items():
            yield _directory(p, source, job, place.path)
    yield from _nowhere(p, places, "checkpoint.directory", lambda rule: rule.checkpoint.directory)


def _directory(p: Patient, source: DirectoryCheckpoints, job: str, path: str) -> Finding:
    begun, where = time.monotonic(), f"checkpoints of {_name(job)} in {path}"
    try:
        saves = source.saves(p.at, [job]).get(job, [])
    except SourceError as error:
        return fail(f"{where}: {error.message}", "does its storage hang?", out_of_reach=True)
    lasted = time.monotonic() - begun
    if source.problem:
        return fail(f"{where}: {source.problem}", f"{account()} must be able to list and read it: a group will do")
    if not saves:
        return _empty(where, job in source.absent)
    if lasted > SLOW:
        return warn(
            f"{where}: reading took {lasted:.1f} s", "many files, or a slow server; name the run's own directory"
        )
    return ok(f"{where}: {_newest(saves[-1])}")


def _newest(save: Save) -> str:
    step = f"step {save.step}" if save.step is not None else "a save without a step"
    return f"{step} is whole, as {save.by} says"


def _empty(where: str, absent: bool) -> Finding:
    if absent:
        return warn(f"{where}: there is no such directory", "no save yet? else correct sessions.checkpoint.directory")
    return warn(
        f"{where}: nothing there says that it is a whole checkpoint",
        "no save yet? else sessions.checkpoint.marker names the file that the trainer writes last, or `rename`",
    )


def _nowhere(p: Patient, places: Mapping[str, object], key: str, pattern: Callable[[SessionRule], str]) -> Findings:
    """Runs whose own names keep a pattern from being filled in."""
    rules = {job.id: rule for job in _running(p) if (rule := rule_for(job, p.site.policy))}
    lost = [_name(job) for job, rule in rules.items() if job not in places and pattern(rule)]
    if lost:
        yield warn(
            f"sessions.{key} cannot be filled in for {some(lost)}",
            "a name that is empty or has a slash in it could lead elsewhere; $job always works",
        )
