"""Path patterns of the site file, filled in for a job. Pure: nothing is looked up."""

from __future__ import annotations

import glob
from collections.abc import Callable, Iterable, Mapping
from string import Template

from bot.model import Job
from bot.policy import Policy, SessionRule
from bot.sessions import rule_for

SessionName = Callable[[str], str | None]  # job id → session-123


def expand(pattern: str, values: Mapping[str, str]) -> str | None:
    """The pattern with a job's values, which can neither leave their place in it nor act as wildcards; None when one
    would, or is empty: users choose the names of their jobs."""
    template = Template(pattern)
    used = {field: values.get(field, "") for field in template.get_identifiers()}
    if not all(_harmless(value) for value in used.values()):
        return None
    path = template.substitute({field: glob.escape(value) for field, value in used.items()})
    return None if {".", ".."} & set(path.split("/")) else path


def _harmless(value: str) -> bool:
    return bool(value) and "/" not in value and value.isprintable()


def places(
    jobs: Iterable[Job], policy: Policy, session: SessionName, pattern: Callable[[SessionRule], str]
) -> dict[str, tuple[str, SessionRule, Job]]:
    """Job id → (path, rule, job) of jobs under care whose rule has such a pattern. session: None = not under care."""
    found: dict[str, tuple[str, SessionRule, Job]] = {}
    for job in jobs:
        rule, name = rule_for(job, policy), session(job.id)
        if rule and name and pattern(rule):
            path = expand(pattern(rule), {"job": job.id, "name": job.name, "user": job.user, "session": name})
            if path:
                found[job.id] = (path, rule, job)
    return found
