"""Policy: numbers, signals, playbooks and session rules, merged from the shipped files and one site file."""

from __future__ import annotations

import difflib
import hashlib
import json
from collections.abc import Mapping, Sequence
from functools import cached_property
from importlib.resources import files
from string import Template
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field, RootModel, model_validator

from bot import yamlfile
from bot.errors import ConfigError
from bot.model import Kind, Mode
from bot.storage.numbers import StorageNumbers
from bot.storage.numbers import numbers as storage_numbers
from bot.yamlfile import Duration, Located, Strict

XidAction = Literal["none", "restart_app", "reset_idle", "reset", "reboot", "test", "repair"]
Phase = Literal["idle", "start", "save", "load", "boot"]
Share = Annotated[float, Field(ge=0, le=1)]
Count = Annotated[int, Field(ge=1)]
Category = Literal[
    "bus",
    "nvlink",
    "ecc",
    "gsp",
    "thermal",
    "power",
    "host",
    "storage",
    "fabric",
    "telemetry",
    "progress",
    "application",
]


class Time(Strict):
    step: Duration
    window: Duration
    lag: Duration
    past_from: Duration
    past_to: Duration
    past_step: Duration


class ScoreNumbers(Strict):
    hard_line: Share
    soft_cap: Share
    open_at: Share
    open_after: Duration
    close_below: Share
    close_after: Duration


class PhaseNumbers(Strict):
    start: Duration
    boot: Duration
    save_bytes: float
    load_bytes: float
    settle: Duration


class IncidentNumbers(Strict):
    storm_nodes: Count
    storm_peers: Count
    storm_share: Share
    storm_within: Duration
    clean_after: Duration
    precursor_good_after: Duration
    blind_after: Count
    blind_idle_after: Duration
    blind_clear_after: Count
    episode_within: Duration


class RepeatNumbers(Strict):
    runs: Annotated[int, Field(ge=2)]
    within: Annotated[Duration, Field(le=7 * 86_400)]  # the store forgets what has ended after as long
    share: Share
    lasts: Duration
    settle: Duration


class ProgressNumbers(Strict):
    still_activity: Share
    still_bytes: float
    hung_after: Duration
    hung_after_alone: Duration
    pauses: Annotated[float, Field(ge=1)]
    pause_most: Duration
    resumed_after: Duration
    level_over: Duration
    learn_after: Duration
    learn_every: Duration
    learn_least: Share
    slow: Share
    slow_straggler: Share
    slow_recovered: Share
    slow_after: Duration
    accepted_after: Duration


class RecoveryNumbers(Strict):
    gap: Duration
    gap_max: Duration
    attempts_without_checkpoint: Count
    chain_attempts: Count
    chain_window: Duration
    load_time: Duration
    checkpoint_interval: Duration
    survived_after: Duration
    settle: Duration


class Caps(Strict):
    fleet_retries: Count
    fleet_window: Duration
    held_nodes: Count
    held_share: Share
    writes: Count
    write_window: Duration


class ApprovalNumbers(Strict):
    expires: Duration
    veto: Duration
    review_after: Duration
    action_expires: Duration


class Numbers(Strict):
    time: Time
    score: ScoreNumbers
    phases: PhaseNumbers
    incidents: IncidentNumbers
    repeats: RepeatNumbers
    progress: ProgressNumbers
    recovery: RecoveryNumbers
    caps: Caps
    approvals: ApprovalNumbers


class Evidence(Strict):
    """How a value becomes evidence. class: `threshold` (bad at `at` and above), `change` (bad when the value rose
    by `at` within `lasts`), `missing` (bad when the value is below the node's expected GPU count by `at`, and not 0),
    `gone` (bad when the value is 0 on a node that should have GPUs), `peers` (bad when it stands `at` spreads away from
    the median of its session's nodes, on the `side` given), `context` (never bad: it tells in which phase a node is).

    strength: evidence once bad. ramp: the value at which evidence reaches `full` (linear from `strength`).
    lasts: an event counts for this long after it was seen, whatever follows; 0 = only while it is seen.
    event: the driver reported it, it is no statistics: it opens an incident without standing for `open_after`.
    floor, floor_abs: the spread is at least this share of the median, and at least this much. least: the median must
    be at least this for a comparison to mean something. own_past: what counts is how much further it stands from its
    peers than it did earlier in the same run: ranks have places, and some places do less for ever.
    """

    kind: Literal["threshold", "change", "missing", "gone", "peers", "context"] = Field(alias="class")
    at: float = 1.0
    side: Literal["high", "low"] = "high"
    floor: Share = 0.0
    floor_abs: float = 0.0
    least: float = 0.0
    own_past: bool = False
    event: bool = False
    strength: Share = 0.0
    ramp: float | None = None
    full: Share | None = None
    lasts: Duration = 0

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if (self.ramp is None) != (self.full is None):
            raise ValueError("ramp and full go together")
        if self.ramp is not None and self.ramp <= self.at:
            raise ValueError(f"ramp must lie above at ({self.at:g})")
        if self.kind == "change" and not self.lasts:
            raise ValueError("class change needs lasts: how far back it looks for the rise")
        if self.kind == "peers" and not (self.floor or self.floor_abs):
            raise ValueError(
                "class peers needs floor or floor_abs: peers that are all alike have no spread of their own"
            )
        return self


def _told(text: str) -> str:
    """A reading's text can be filled in with what a reading knows."""
    try:
        text.format(value=0.0, expected=0.0, peers=0.0, xid_name="")
    except (KeyError, IndexError, ValueError, AttributeError) as error:
        raise ValueError(
            f"{text!r} cannot be filled in ({error}); it knows value, expected, peers, xid_name"
        ) from error
    return text


class Signal(Strict):
    """One kind of evidence. query: PromQL for one value per node; empty: only logs and other tools tell it. In it `$by`
    stands for the site's node labels, `$gpu` for these and the labels that tell one GPU, `$dcgm` for the matcher of the
    site's dcgm jobs.

    value_label: a label that holds the value (`xid`), for queries that can only count; values that are not codes of
    `xid_action` are left out. A value above blank_above (DCGM's way to say that there is none) or below blank_below
    is unknown. exporter: where the value comes from; a comparison with peers says nothing while that one is frozen.
    not_during: phases in which it says nothing.
    """

    title: str
    category: Category
    hard: bool = False
    provenance: Literal["kernel", "claimed"] = "kernel"
    query: str = ""
    evidence: Evidence
    exporter: Literal["", "dcgm", "node"] = ""
    not_during: tuple[Phase, ...] = ()
    persistence: Duration = 0
    weight: Share = 1.0
    blank_above: float = 1e12
    blank_below: float = 0.0
    xid_action: tuple[XidAction, ...] = ()
    value_label: str = ""
    opens: Literal["", "blind"] = ""
    text: Annotated[str, AfterValidator(_told)]
    why: str
    source: str
    id: str = ""


class When(Strict):
    kind: Kind
    hard: bool | None = None


class Step(Strict):
    """One step with its mode per session state."""

    step: str
    dead: Mode
    degraded: Mode
    running: Mode


class Playbook(Strict):
    id: str
    title: str
    when: When
    steps: tuple[Step, ...]
    why: str


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


class Policy(Strict):
    numbers: Numbers
    storage: StorageNumbers = Field(default_factory=storage_numbers)
    signals: Mapping[str, Signal]
    playbooks: tuple[Playbook, ...]
    sessions: tuple[SessionRule, ...] = ()
    write_mode: Mode = "observe"
    gpus: Mapping[str, int] = {}

    @cached_property
    def hash(self) -> str:
        """First 12 hex digits of the SHA-256 of the merged policy; stored with each decision."""
        text = json.dumps(self.model_dump(mode="json"), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """Pydantic's, whose copies keep what was computed of the old one."""
        copied = super().model_copy(update=update, deep=deep)
        copied.__dict__.pop("hash", None)
        return copied


def shipped(package: str, name: str) -> Located:
    return yamlfile.parse(files(package).joinpath(name).read_text(encoding="utf-8"), f"{package}/{name}")


def _laid_over(base: Located, over: Any, site: Located | None, key: str) -> Located:
    """The shipped document with the site's laid over it; a fault in what the site gave is told with the site's line."""
    return Located(base.name, yamlfile.merged(base.data, over or {}), base.lines, site, key)


def numbers(over: Any, site: Located | None = None) -> Numbers:
    return yamlfile.validate(Numbers, _laid_over(shipped("bot", "policy.yaml"), over, site, "policy"))


class _Catalogue(RootModel[dict[str, Signal]]):
    pass


def signals(over: Any, site: Located | None = None) -> dict[str, Signal]:
    """Shipped catalogue with the site's laid over it by id. Another id is a signal of the site's own."""
    base = shipped("bot.signals", "catalogue.yaml")
    own = {name: _own(name, entry, base, site) for name, entry in (over or {}).items() if name not in base.data}
    table = yamlfile.validate(_Catalogue, _laid_over(base, {**(over or {}), **own}, site, "signals")).root
    return {name: signal.model_copy(update={"id": name}) for name, signal in table.items()}


def _own(name: str, entry: Any, base: Located, site: Located | None) -> Any:
    """What a site says of a signal that is not shipped, and for the rest: soft, and a claim. Raises ConfigError for
    what may be a shipped one misspelt."""
    if not isinstance(entry, Mapping) or not {"query", "evidence"} <= set(entry):
        near = difflib.get_close_matches(name, base.data, n=1, cutoff=0.5)
        meant = f"; did you mean {near[0]!r}?" if near else ""
        where = f"{site.name}:{site.line(('signals', name))}: " if site else ""
        raise ConfigError(
            f"{where}signals.{name}: not in the catalogue{meant}", "a signal of your own needs a query and evidence"
        )
    told = {"title": name, "category": "host", "provenance": "claimed", "text": f"{name}: {{value:.4g}}"}
    return {**told, "why": "the site's own", "source": "the site file", **entry}


def build(
    *,
    policy: Any = None,
    signal_overrides: Any = None,
    playbooks: Sequence[Playbook] = (),
    sessions: Sequence[SessionRule] = (),
    write_mode: Mode = "observe",
    gpus: Mapping[str, int] | None = None,
    located: Located | None = None,
) -> Policy:
    over = dict(policy or {})
    storage = storage_numbers(over.pop("storage", None), located)
    return Policy(
        numbers=numbers(over, located),
        storage=storage,
        signals=signals(signal_overrides, located),
        playbooks=tuple(playbooks),
        sessions=tuple(sessions),
        write_mode=write_mode,
        gpus=gpus or {},
    )
