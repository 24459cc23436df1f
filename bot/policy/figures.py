"""The numbers of policy.yaml, each within what makes sense."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from bot.yamlfile import Duration, Strict

Share = Annotated[float, Field(ge=0, le=1)]
Count = Annotated[int, Field(ge=1)]


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
    precursor_faded_after: Duration
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
    slow_getattr: float
    hung_after: Duration
    hung_after_alone: Duration
    pauses: Annotated[float, Field(ge=1)]
    pause_most: Duration
    log_known_after: Count
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
