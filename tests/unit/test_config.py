"""The site file: strict, with lines, and no value turned into something else."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot import yamlfile
from bot.config import secret
from bot.errors import ConfigError
from bot.site import read_site

SMALLEST = """\
site: {name: haein, timezone: Asia/Seoul}
prometheus: {url: "http://prom:9090"}
scheduler: {kind: slurm}
sessions: [{match: {partition: train, qos: pretrain}}]
"""


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "xidbot.yaml"
    path.write_text(text)
    return path


def test_the_smallest_site_file_is_read_only(tmp_path: Path) -> None:
    site = read_site(write(tmp_path, SMALLEST))
    assert site.policy.write_mode == "observe"
    assert len(site.policy.hash) == 12
    assert {p.id for p in site.policy.playbooks} >= {"gpu_fault_hard", "session_failed"}


def test_a_copied_policy_has_the_hash_of_what_it_says(tmp_path: Path) -> None:
    plain = read_site(write(tmp_path, SMALLEST)).policy
    assert plain.model_copy().hash == plain.hash
    assert plain.model_copy(update={"signals": {}}).hash not in ("", plain.hash)


def test_the_hash_changes_with_the_policy_and_with_nothing_else(tmp_path: Path) -> None:
    plain = read_site(write(tmp_path, SMALLEST)).policy.hash
    other = read_site(write(tmp_path, SMALLEST + "policy: {recovery: {gap: 3m}}\n")).policy.hash
    again = read_site(write(tmp_path, "# a comment\n" + SMALLEST)).policy.hash
    assert plain == again != other


FAULTS = [
    ("site: {name: x}\nprometheus: {ulr: http://a:1}\nscheduler: {}\n", ":2: prometheus.ulr: unknown key; did you mean 'url'?"),
    ("site: {name: x}\nprometheus: {url: http://a:1}\nscheduler: {}\npolicy:\n  recovery:\n    gap: 2x\n", ":6: policy.recovery.gap"),
    ("site: {name: x}\nprometheus: {url: http://a:1}\nscheduler: {}\npolicy:\n  recovery: {gpa: 2m}\n", "did you mean 'gap'?"),
    ("site: {name: x}\nprometheus: {url: http://a:1}\nscheduler: {}\nsite: {name: y}\n", ":4: 'site' stands twice"),
    ("site: {name: x, timezone: Mars/Base}\nprometheus: {url: http://a:1}\nscheduler: {}\n", "no time zone"),
    ("site: {name: x}\nprometheus: {url: prom:9090}\nscheduler: {}\n", "no http(s) URL"),
    ("site: {name: x, write_mode: on}\nprometheus: {url: http://a:1}\nscheduler: {}\n", ":1: site.write_mode"),
    ("site: {name: x\n", "xidbot.yaml:"),
    ("prometheus: {url: http://a:1}\nscheduler: {}\n", "site: missing"),
    ("site: {name: x}\nprometheus: {url: http://a:1, node_pattern: '('}\nscheduler: {}\n", "no regular expression"),
    ("site: {name: x}\nprometheus: {url: http://a:1, timeout: 10}\nscheduler: {}\n", "not a duration"),
    ("site: {name: x}\nprometheus: {url: http://a:1}\nscheduler: {}\nsignals: {dbe: {wieght: 1}}\n", "did you mean 'weight'?"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "says"), FAULTS, ids=[says[:30] for _, says in FAULTS])
def test_every_fault_has_its_line_and_what_was_meant(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(ConfigError) as error:
        read_site(write(tmp_path, text))
    assert says in str(error.value)
    assert "xidbot.yaml" in str(error.value)


def test_a_missing_file_says_how_to_name_one(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="--config"):
        read_site(tmp_path / "nowhere.yaml")


@pytest.mark.parametrize("text", ["22:00", "off", "0017", "1e3", "no", "0x10", "1_000", "~", "2026-11-30"])
def test_strings_survive(text: str) -> None:
    assert yamlfile.parse(f"a: {text}", "x").data == {"a": text}


def test_an_unknown_step_in_a_playbook_is_refused(tmp_path: Path) -> None:
    book = "{id: mine, title: t, why: w, when: {kind: gpu_fault}, steps: [{step: reboot, dead: auto, degraded: auto, running: auto}]}"
    with pytest.raises(ConfigError, match="no step reboot"):
        read_site(write(tmp_path, SMALLEST + f"playbooks: [{book}]\n"))


@given(st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=200))
def test_any_text_is_read_or_refused_with_a_clear_error(text: str) -> None:
    try:
        yamlfile.parse(text, "x.yaml")
    except ConfigError as error:
        assert "x.yaml" in str(error)


@pytest.mark.parametrize(
    ("text", "seconds"), [("90s", 90), ("15m", 900), ("24h", 86400), ("7d", 604800), ("1h30m", 5400)]
)
def test_durations(text: str, seconds: int) -> None:
    assert yamlfile.seconds(text) == seconds


def test_an_empty_secret_is_refused_and_an_absent_one_is_absent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SLACK_BOT_TOKEN", raising=False)
    assert secret("SLACK_BOT_TOKEN", None) is None
    monkeypatch.setenv("SLACK_BOT_TOKEN", " ")
    with pytest.raises(ConfigError, match="set but empty"):
        secret("SLACK_BOT_TOKEN", None)
    (tmp_path / "t").write_text("\n")
    with pytest.raises(ConfigError, match="is empty"):
        secret("SLACK_BOT_TOKEN", tmp_path / "t")
