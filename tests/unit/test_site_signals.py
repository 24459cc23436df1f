"""A site's own score joins ours, or replaces it."""

from __future__ import annotations

from pathlib import Path

import pytest

from bot.config_example import example
from bot.decide import decide
from bot.errors import ConfigError
from bot.guards import Case, Stop, provenance
from bot.model import Incident, Observation
from bot.policy import Policy
from bot.schedulers.simulated import SimulatedScheduler
from bot.site import read_site
from bot.state import State, fold
from tests.unit.test_observe import Eyes

HEAD = 'site: {name: x}\nprometheus: {url: "http://prom:9090"}\nscheduler: {kind: slurm}\n'
OURS = """\
signals:
  our_score:
    query: max by ($by) (our_fused_score{model="v2"})
    evidence: {class: threshold, at: 0.5, strength: 0.60, ramp: 1, full: 0.79}
"""


def site(tmp_path: Path, text: str) -> Policy:
    (tmp_path / "xidbot.yaml").write_text(HEAD + text)
    return read_site(tmp_path / "xidbot.yaml").policy


def looked(policy: Policy, **told: dict[str, float]) -> Observation:
    """All is well but for this."""
    eyes = Eyes(policy, scheduler=SimulatedScheduler())
    for signal, hosts in told.items():
        eyes.tells(signal, **{host.replace("-", "_"): value for host, value in hosts.items()})
    return eyes.look()


def opened(policy: Policy, **told: dict[str, float]) -> list[Incident]:
    return fold(decide(State(), looked(policy, **told), policy)).open_incidents()


def test_it_needs_no_more_than_a_query_and_how_it_counts(tmp_path: Path) -> None:
    ours = site(tmp_path, OURS).signals["our_score"]
    assert (ours.id, ours.provenance, ours.hard, ours.weight, ours.category) == (
        "our_score", "claimed", False, 1.0, "host",
    )  # fmt: skip


def test_it_opens_a_warning_that_acts_on_nothing(tmp_path: Path) -> None:
    policy = site(tmp_path, OURS)
    (incident,) = opened(policy, our_score={"node-01": 0.9})
    assert (incident.kind, incident.subject, incident.hard) == ("precursor", "node-01", False)
    (reason,) = incident.reasons
    assert reason.text == "our_score: 0.9" and reason.provenance == "claimed"
    assert reason.evidence == pytest.approx(0.60 + 0.19 * 0.8)
    assert opened(policy, our_score={"node-01": 0.4}) == []


def test_it_never_condemns_however_much_it_says(tmp_path: Path) -> None:
    (incident,) = opened(site(tmp_path, OURS.replace("0.79", "1.0")), our_score={"node-01": 1.0})
    assert incident.kind == "precursor" and incident.score == 0.79


def test_one_that_condemns_is_still_a_claim_and_goes_no_further_than_a_suggestion(tmp_path: Path) -> None:
    policy = site(tmp_path, OURS.replace("    query", "    hard: true\n    query").replace("0.79", "1.0"))
    (incident,) = opened(policy, our_score={"node-01": 1.0})
    assert (incident.kind, incident.reasons[0].provenance) == ("gpu_fault", "claimed")
    assert isinstance(provenance(Case(State(), None, policy, 0, (), incident)), Stop)


def test_it_joins_what_we_find(tmp_path: Path) -> None:
    policy = site(tmp_path, OURS)
    seen = looked(policy, our_score={"node-01": 0.5}, pcie_replay={"node-01": 10.0})
    assert seen.scores is not None
    assert [r.signal for r in seen.scores["node-01"].reasons] == ["our_score", "pcie_replay"]
    assert seen.scores["node-01"].score == pytest.approx(1 - 0.4 * 0.55)


def test_the_site_may_say_that_it_is_no_claim_and_that_it_condemns(tmp_path: Path) -> None:
    more = OURS.replace("    query", "    provenance: kernel\n    hard: true\n    category: bus\n    query")
    policy = site(tmp_path, more.replace("0.79", "1.0"))
    (incident,) = opened(policy, our_score={"node-01": 1.0})
    assert (incident.kind, incident.hard, incident.reasons[0].provenance) == ("gpu_fault", True, "kernel")


def test_ours_are_silenced_by_weight_0_and_still_shown(tmp_path: Path) -> None:
    policy = site(tmp_path, OURS + "  correctable_remap_growth: {weight: 0}\n  row_remap_failure: {weight: 0}\n")
    seen = looked(policy, correctable_remap_growth={"node-01": 99.0}, row_remap_failure={"node-01": 1.0})
    assert seen.scores is not None and (seen.scores["node-01"].score, seen.scores["node-01"].hard) == (0.0, False)
    assert {r.signal for r in seen.scores["node-01"].reasons} == {"correctable_remap_growth", "row_remap_failure"}
    assert fold(decide(State(), seen, policy)).open_incidents() == []


@pytest.mark.parametrize(("text", "says"), [
    ("signals:\n  row_remap_failur: {weight: 0}\n", "xidbot.yaml:5: signals.row_remap_failur: not in the catalogue; did you mean 'row_remap_failure'?"),
    ("signals:\n  our_score: {query: up}\n", "a signal of your own needs a query and evidence"),
    ("signals:\n  our_score: 3\n", "a signal of your own needs a query and evidence"),
    (OURS.replace("class: threshold", "class: treshold"), "xidbot.yaml:7: signals.our_score.evidence"),
    (OURS + "    wieght: 1\n", "did you mean 'weight'?"),
    (OURS + "    category: weather\n", "signals.our_score.category"),
])  # fmt: skip
def test_what_is_wrong_with_it_is_told_with_its_line(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(ConfigError) as error:
        site(tmp_path, text)
    assert says in str(error.value)


def test_the_example_shows_one(tmp_path: Path) -> None:
    text = example().replace("  # our_score:", "  our_score:")
    (tmp_path / "xidbot.yaml").write_text(text)
    assert read_site(tmp_path / "xidbot.yaml").policy.signals["our_score"].provenance == "claimed"
