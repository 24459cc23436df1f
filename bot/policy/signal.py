"""A signal of the catalogue, and how its value becomes evidence."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from bot.policy.figures import Share
from bot.yamlfile import Duration, Strict

XidAction = Literal["none", "restart_app", "reset_idle", "reset", "reboot", "test", "repair"]
Phase = Literal["idle", "start", "save", "load", "boot"]
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


class Evidence(Strict):
    """How a value becomes evidence. class: `threshold` (bad at `at` and above), `change` (bad when the value rose
    by `at` within `lasts`), `missing` (bad when the value is below the node's expected GPU count by `at`, and not 0),
    `gone` (bad when the value is 0 on a node that should have GPUs), `peers` (bad when it stands `at` spreads away from
    the median of its session's nodes, on the `side` given), `context` (never bad: it tells in which phase a node is).

    strength: evidence once bad. ramp: the value at which evidence reaches `full` (linear from `strength`).
    until: a warning that tells it goes on until the value is below this; without it, below `at`.
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
    until: float | None = None
    lasts: Duration = 0

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if (self.ramp is None) != (self.full is None):
            raise ValueError("ramp and full go together")
        if self.ramp is not None and self.ramp <= self.at:
            raise ValueError(f"ramp must lie above at ({self.at:g})")
        if self.until is not None and (self.kind != "threshold" or self.until > self.at):
            raise ValueError(f"until is for the class threshold and lies below at ({self.at:g})")
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
