"""A stall in words: only what was measured, and never more promised than the numbers allow."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from bot import policy as policies
from bot.config import Config
from bot.errors import ConfigError
from bot.model import Measures, Stall, Verdict
from bot.storage.words import ADVICE, rate, seconds, words
from bot.yamlfile import read, validate

FULL = Measures(
    queue_share=0.9,
    in_flight=16,
    slots=16,
    backlog=2000,
    rtt=0.1,
    rtt_usual=0.1,
    retransmitted=0.02,
    worst_node="node-17",
    worst_rtt=1.2,
    rate=10e9,
    rate_usual=40e9,
    link_use=0.25,
    op_mix=(("GETATTR", 0.5), ("WRITE", 0.25), ("OPEN", 0.25)),
    ceiling=168e6,
    nodes=60,
)
STALL = Stall("s:/x", "slow_save", "client_slots", 100, measures=FULL)


@pytest.mark.parametrize(
    ("verdict", "worth"),
    [
        ("client_slots", "at most 4.0×"),  # 10× without a queue, but the link is full at 4×
        ("node_path", "at most 12×"),
        ("link", "at most 4.0×"),
        ("metadata", "at most 4.0×"),
    ],
)
def test_advice_has_an_upper_bound(verdict: Verdict, worth: str) -> None:
    assert worth in words(replace(STALL, verdict=verdict, node="node-17")).advice


def test_a_server_is_worth_what_its_round_trip_lost() -> None:
    slow = replace(FULL, rtt=0.75)
    assert "at most 7.5×" in words(replace(STALL, verdict="server", measures=slow)).advice


@pytest.mark.parametrize("verdict", list(ADVICE))
@pytest.mark.parametrize("rule", ["slow_save", "slow_load", "hang", "overdue_save"])
def test_nothing_measured_is_still_said_in_words(verdict: Verdict, rule: str) -> None:
    told = words(Stall("s:/x", rule, verdict, 100, node="node-1"))  # type: ignore[arg-type]
    assert told.title and told.advice and told.numbers == ()
    assert "None" not in told.title + told.advice


def test_what_would_be_needed_is_said() -> None:
    told = words(replace(STALL, verdict="unknown", measures=replace(FULL, slots=None, missing=("storage.slots",))))
    assert "looks like full RPC slots" in told.advice and "storage.slots" in told.advice


def test_an_idle_storage_sends_people_to_the_job() -> None:
    told = words(Stall("s:/x", "overdue_save", "unknown", 100, measures=Measures(in_flight=0.0)))
    assert "idle" in told.title and "look at the job itself" in told.advice


def test_units_read_as_people_say_them() -> None:
    assert [seconds(v) for v in (0.0008, 0.1, 12.94, 1234.0)] == ["0.8 ms", "100 ms", "12.9 s", "1,234 s"]
    assert [rate(v) for v in (5, 2e3, 671e6, 39.8e9)] == ["5 B/s", "2.0 kB/s", "671.0 MB/s", "39.8 GB/s"]


SITE = """
site: {name: haein}
prometheus: {url: "http://prom:9090"}
scheduler: {kind: slurm}
storage: {slots: {"storage-01:/export/ckpt": "128"}, nconnect: "8", wsize: "1048576", link: "25e9"}
policy: {storage: {late: "3", floor_bytes: "1e6"}}
"""


def test_a_site_tells_its_mounts_and_its_own_numbers(tmp_path: Path) -> None:
    (tmp_path / "x.yaml").write_text(SITE)
    config = validate(Config, read(tmp_path / "x.yaml"))
    assert config.storage.slots == {"storage-01:/export/ckpt": 128} and config.storage.link == 25e9
    own, shipped = policies.build(policy=config.policy), policies.build()
    assert (own.storage.late, own.storage.floor_bytes) == (3, 1e6)
    assert own.storage.slow == shipped.storage.slow and own.hash != shipped.hash


def test_a_wrong_number_is_told_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "x.yaml").write_text(SITE.replace('late: "3"', 'late: "often"'))
    located = read(tmp_path / "x.yaml")
    config = validate(Config, located)
    with pytest.raises(ConfigError, match=r"x\.yaml:6: policy\.storage\.late"):
        policies.build(policy=config.policy, located=located)
