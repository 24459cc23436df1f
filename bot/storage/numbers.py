"""The storage watch's numbers and what a site may tell of its mounts. Imports no numpy: the policy is read with it."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.resources import files
from typing import Annotated, Any

from pydantic import Field

from bot import yamlfile
from bot.yamlfile import Duration, Located, Strict

Share = Annotated[float, Field(ge=0, le=1)]
Times = Annotated[float, Field(ge=1)]
Count = Annotated[int, Field(ge=1)]
Positive = Annotated[float, Field(gt=0)]


class StorageNumbers(Strict):
    """Each with its reason in storage.yaml. Rates are bytes/s of all nodes of a run."""

    step: Duration
    history: Duration
    gap: Duration
    floor_bytes: Positive
    over_background: Times
    over_usual: Share
    falls_to: Share
    settle: Duration
    alike: Share
    known_after: Count
    kept: Count
    saves_kept: Count
    late: Times
    few: Times
    least: Duration
    slow: Share
    done: Share
    pressing: Share
    save_limit: Duration
    load_limit: Duration
    load_within: Duration
    overdue: Times
    regular: Share
    frozen_for: Duration
    busy_share: Share
    normal_saves: Count
    calm_for: Duration
    judged_over: Duration
    verdict_for: Duration
    queue_share: Share
    queue_all: Share
    slot_use: Share
    backlog_full: Share
    least_in_flight: float
    rtt_high: Times
    node_rtt: Times
    node_retransmits: Share
    node_share: Share
    link_use: Share
    metadata_share: Share
    metadata_over: Times
    metadata_far: Times
    metadata_least: Share


class MountFacts(Strict):
    """What a site knows of its mounts and the counters do not tell. link: bytes/s of one node's storage link."""

    slots: Mapping[str, Count] = {}  # export → RPC slots per connection; RDMA mounts report 0
    nconnect: Count | None = None
    wsize: Count | None = None
    link: Positive | None = None


class _File(Strict):
    storage: StorageNumbers


def numbers(over: Any = None, site: Located | None = None) -> StorageNumbers:
    """The shipped numbers with the site's `policy: {storage: …}` laid over. Raises ConfigError with the site's line."""
    base = yamlfile.parse(
        files("bot.storage").joinpath("storage.yaml").read_text(encoding="utf-8"), "bot.storage/storage.yaml"
    )
    merged = yamlfile.merged(base.data, {"storage": over} if over else {})
    return yamlfile.validate(_File, Located(base.name, merged, base.lines, site, "policy")).storage
