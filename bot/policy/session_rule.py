"""Which runs are under care, and where they leave what they tell."""

from __future__ import annotations

from string import Template
from typing import Annotated

from pydantic import AfterValidator

from bot.model import Mode
from bot.yamlfile import Strict


class CheckpointGauges(Strict):
    step: str = 'train_checkpoint_step{job="$job"}'
    started: str = 'train_checkpoint_started_timestamp{job="$job"}'
    completed: str = 'train_checkpoint_completed_timestamp{job="$job"}'


PATH_FIELDS = ("job", "name", "user", "session")


def _path_pattern(text: str) -> str:
    """Absolute, without `..`, and only with fields that a job has; `*`, `?` and `[…]` match as in a shell."""
    template = Template(text)
    unknown = set(template.get_identifiers()) - set(PATH_FIELDS) if template.is_valid() else {text}
    if text and (unknown or not text.startswith("/") or ".." in text.split("/")):
        raise ValueError(f"{text!r} is no path pattern; write one like /logs/$user/$name-$job.out, with {PATH_FIELDS}")
    return text


PathPattern = Annotated[str, AfterValidator(_path_pattern)]


class CheckpointRule(Strict):
    """directory: where the run's checkpoints lie. marker: a glob of the file that its trainer writes last, in the
    directory or in each checkpoint; empty = the usual frameworks' own; `rename` = a checkpoint has its name once whole.
    """

    prometheus: CheckpointGauges = CheckpointGauges()
    directory: PathPattern = ""
    marker: str = ""


class Match(Strict):
    """Globs; every one given must match."""

    partition: str | None = None
    account: str | None = None
    qos: str | None = None
    comment: str | None = None
    name: str | None = None
    user: str | None = None


class SessionRule(Strict):
    match: Match
    controller: str = "xidbot"
    checkpoint: CheckpointRule = CheckpointRule()
    log: PathPattern = ""  # where the run's own log lies
    mode: Mode | None = None
    no_requeue_codes: tuple[str, ...] = ("93",)  # NVRx: decided, do not requeue
