"""The simulated cluster: what its metrics show, how its run lives, and that looking ahead shows what looking shows."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path
from random import Random

import numpy as np
import pytest

from bot.errors import ConfigError, Unreachable
from bot.model import Holder, Observation, Reading
from bot.observe import LiveObserver
from bot.sandbox import faults
from bot.sandbox.ahead import AheadObserver
from bot.sandbox.cluster import NODES, RUN_NODES, SimulatedCluster
from bot.sandbox.faults import Deck
from bot.sandbox.metrics import SIGNALS, SimulatedCheckpoints, SimulatedMetrics
from bot.sandbox.parts import demo_database, demo_policy
from bot.sandbox.record import EVERYWHERE
from bot.sandbox.training import JOB, LOAD
from store.database import Database

START = 1_796_000_040
MINUTE, HOUR, DAY = 60, 3600, 86_400
POLICY = demo_policy()


@pytest.fixture
def cluster() -> SimulatedCluster:
    return SimulatedCluster(1, START, calm=True)


def values(cluster: SimulatedCluster, signal: str, node: str, back: int = 15 * MINUTE) -> list[float]:
    """By the minute, the newest last."""
    asked = POLICY.signals[signal]
    matrix = SimulatedMetrics(cluster).matrix(asked, cluster.now - back, cluster.now, MINUTE, cluster.scheduler.nodes)
    return [float(v) for v in matrix.values[:, matrix.hosts.index(node)]]


def after(cluster: SimulatedCluster, seconds: int) -> None:
    cluster.turn(cluster.now + seconds)


# -- metrics -----------------------------------------------------------------------------------------------------------


def test_what_the_simulation_measures_is_known_and_good_in_a_calm_cluster(cluster: SimulatedCluster) -> None:
    assert set(SIGNALS) <= set(POLICY.signals)
    seen = live(cluster).observe(cluster.now)
    assert seen.cluster and len(seen.cluster.nodes) == NODES
    measured = [r for r in seen.readings if r.signal in SIGNALS]
    assert {r.state for r in measured} == {"good"} and len(measured) == NODES * len(SIGNALS)
    assert not any(source.problem for source in seen.sources)


def test_a_signal_of_the_sites_own_is_unknown_everywhere(cluster: SimulatedCluster) -> None:
    own = POLICY.signals["dbe"].model_copy(update={"id": "our_own"})
    matrix = SimulatedMetrics(cluster).matrix(own, cluster.now, cluster.now, MINUTE, cluster.scheduler.nodes)
    assert matrix.values.shape == (1, NODES) and np.isnan(matrix.values).all()


def test_hosts_are_known_where_the_scheduler_knows_them(cluster: SimulatedCluster) -> None:
    matrix = SimulatedMetrics(cluster).matrix(POLICY.signals["dbe"], cluster.now, cluster.now, MINUTE, {"node-02"})
    assert [host for host, known in zip(matrix.hosts, matrix.known, strict=True) if known] == ["node-02"]


def test_an_xid_shows_in_its_own_class_while_the_gauges_change_is_seen(cluster: SimulatedCluster) -> None:
    cluster.record.mark("xid", "node-07", cluster.now, 79, gpu=3)
    after(cluster, 8 * MINUTE)
    assert values(cluster, "xid_reboot", "node-07", 9 * MINUTE) == [0, 79, 79, 79, 79, 79, 79, 0, 0, 0]
    assert set(values(cluster, "xid_reset", "node-07")) == {0}
    assert set(values(cluster, "xid_reboot", "node-08")) == {0}


def test_the_same_xid_again_is_no_change_and_another_is(cluster: SimulatedCluster) -> None:
    for minutes, code in ((0, 95), (20, 95), (40, 79), (60, 95)):
        cluster.record.mark("xid", "node-07", START + minutes * MINUTE, code)
    after(cluster, 70 * MINUTE)
    shown = values(cluster, "xid_reset", "node-07", 70 * MINUTE)
    assert [minute for minute, value in enumerate(shown) if value] == [*range(6), *range(60, 66)]


def test_which_gpu_it_was_is_told_while_it_shows(cluster: SimulatedCluster) -> None:
    cluster.record.mark("xid", "node-07", cluster.now, 79, gpu=3)
    tell = SimulatedMetrics(cluster).details
    told = tell(POLICY.signals["xid_reboot"], cluster.now + MINUTE, cluster.scheduler.nodes)
    assert told == {"node-07": "Xid 79 (GPU has fallen off the bus) on GPU 3"}
    assert tell(POLICY.signals["xid_reset"], cluster.now + MINUTE, cluster.scheduler.nodes) == {}
    assert tell(POLICY.signals["gpu_missing"], cluster.now + MINUTE, cluster.scheduler.nodes) == {}


def test_growth_is_what_was_added_within_the_signals_look_back(cluster: SimulatedCluster) -> None:
    for hours, rows in ((0, 4), (1, 7)):
        cluster.record.mark("correctable", "node-07", START + hours * HOUR, rows)
    after(cluster, 2 * HOUR)
    assert values(cluster, "correctable_remap_growth", "node-07")[-1] == 11
    after(cluster, 23 * HOUR - MINUTE)
    assert values(cluster, "correctable_remap_growth", "node-07")[-1] == 7


def test_of_a_node_without_exporter_only_that_is_known(cluster: SimulatedCluster) -> None:
    cluster.record.spell("exporter_down", "node-07", cluster.now, cluster.now + 5 * MINUTE)
    after(cluster, 2 * MINUTE)
    assert values(cluster, "exporter_down", "node-07")[-3:] == [1, 1, 1]
    for signal in set(SIGNALS) - {"exporter_down"}:
        assert np.isnan(values(cluster, signal, "node-07")[-3:]).all()
        assert not np.isnan(values(cluster, signal, "node-08")).any()
    after(cluster, 3 * MINUTE)
    assert values(cluster, "exporter_down", "node-07")[-1] == 0


def test_a_blind_prometheus_answers_nothing_and_remembers_all(cluster: SimulatedCluster) -> None:
    cluster.record.spell("blind", EVERYWHERE, cluster.now, cluster.now + 5 * MINUTE)
    with pytest.raises(Unreachable, match="no answer"):
        values(cluster, "dbe", "node-07")
    with pytest.raises(Unreachable, match="no answer"):
        SimulatedCheckpoints(cluster).checkpoints(cluster.now, {JOB: (JOB,)})
    after(cluster, 5 * MINUTE)
    assert set(values(cluster, "dbe", "node-07")) == {0}


def test_a_repaired_node_begins_anew(cluster: SimulatedCluster) -> None:
    faults.bus_hang(cluster.trouble, "node-07")
    cluster.record.mark("correctable", "node-07", cluster.now, 40)
    after(cluster, 5 * MINUTE)
    assert values(cluster, "gpu_missing", "node-07")[-1] == 7
    cluster.trouble.repaired("node-07")
    now = [
        values(cluster, signal, "node-07")[-1] for signal in ("gpu_missing", "xid_reboot", "correctable_remap_growth")
    ]
    assert now == [8, 0, 0] and cluster.trouble.sick == {}
    assert cluster.scheduler.nodes["node-07"].booted == cluster.now


# -- the run -----------------------------------------------------------------------------------------------------------


def test_the_run_saves_about_every_half_hour_and_each_save_is_further(cluster: SimulatedCluster) -> None:
    after(cluster, 6 * HOUR)
    recent = [save for save in cluster.run.saves if (save.started or 0) > START]
    ends = [save.completed or 0 for save in recent]
    assert 10 <= len(recent) <= 13
    assert all(27 * MINUTE < b - a < 35 * MINUTE for a, b in zip(ends, ends[1:], strict=False))
    steps = [save.step or 0 for save in cluster.run.saves]
    assert steps == sorted(set(steps)) and cluster.run.step > steps[-1]


def test_a_restart_loads_and_goes_on_from_the_newest_save(cluster: SimulatedCluster) -> None:
    last = cluster.run.saves[-1].step or 0
    cluster.scheduler.requeue(JOB, delay=0)
    after(cluster, LOAD[0] - 1)
    assert cluster.run.latest.id == f"{JOB}#1" and cluster.run.step == last
    assert cluster.run.spoken == f"loading step {last:,}"
    after(cluster, LOAD[1] - LOAD[0] + MINUTE)
    assert last < cluster.run.step < last + 250
    after(cluster, 40 * MINUTE)
    newest = cluster.run.saves[-1]
    assert (newest.step or 0) > last and (newest.started or 0) > (cluster.run.latest.start or 0)


def test_a_hung_run_is_alive_and_saves_nothing(cluster: SimulatedCluster) -> None:
    saves = len(cluster.run.saves)
    cluster.run.hang()
    after(cluster, 3 * HOUR)
    assert cluster.run.latest.alive and len(cluster.run.saves) == saves
    assert (cluster.run.stopped_at, cluster.run.runs_for()) == (START, 0)


def test_a_run_on_a_sick_node_dies_before_it_has_loaded(cluster: SimulatedCluster) -> None:
    faults.bus_kill(cluster.trouble, "node-07")
    after(cluster, MINUTE)
    assert (cluster.run.job.state, cluster.run.latest.exit_code) == ("FAILED", "1:0")
    cluster.scheduler.requeue(JOB, delay=0)
    after(cluster, 9 * MINUTE)
    assert cluster.run.latest.id == f"{JOB}#1" and cluster.run.job.state == "FAILED"
    cluster.scheduler.hold("node-07", Holder("person", "alice", "Xid 79"))
    cluster.scheduler.requeue(JOB, delay=0)
    after(cluster, 2 * HOUR)
    assert cluster.run.latest.id == f"{JOB}#2" and cluster.run.runs_for() == 2 * HOUR


def test_a_stubborn_fault_kills_reruns_on_good_nodes(cluster: SimulatedCluster) -> None:
    faults.stubborn(cluster.trouble, "node-07")
    after(cluster, MINUTE)
    deaths = cluster.trouble.doomed
    cluster.scheduler.hold("node-07", Holder("person", "alice", "Xid 79"))
    for _ in range(deaths + 1):
        cluster.scheduler.requeue(JOB, delay=0)
        after(cluster, 20 * MINUTE)
    ends = [attempt.state for attempt in cluster.run.job.attempts]
    assert deaths and ends == ["FAILED"] * (deaths + 1) + ["RUNNING"]


def test_a_lost_node_is_replaced_by_the_scheduler_itself(cluster: SimulatedCluster) -> None:
    faults.node_lost(cluster.trouble, "node-07")
    after(cluster, MINUTE)
    assert [a.state for a in cluster.run.job.attempts] == ["NODE_FAIL", "RUNNING"]
    assert "node-07" not in cluster.run.nodes and len(cluster.run.nodes) == RUN_NODES


def test_small_jobs_come_and_go_and_leave_two_spares_whole(cluster: SimulatedCluster) -> None:
    seen = set()
    for _ in range(24 * 6):
        after(cluster, 10 * MINUTE)
        seen |= {job.id for job in cluster.scheduler.jobs.values() if job.qos == "small"}
        assert sum(node.gpus_used == 0 for node in cluster.scheduler.nodes.values()) >= 2
        assert len(cluster.scheduler.jobs) < 6
    assert len(seen) > 10


def test_a_deck_deals_every_card_before_any_comes_again() -> None:
    deck = Deck("abc", Random(1), first="z")
    dealt = [deck.deal() for _ in range(7)]
    assert dealt[0] == "z" and sorted(dealt[1:4]) == sorted(dealt[4:]) == ["a", "b", "c"]


def test_the_same_seed_brings_the_same_trouble_and_another_another() -> None:
    def trouble(seed: int) -> list[faults.Struck]:
        cluster = SimulatedCluster(seed, START)
        after(cluster, DAY)
        return cluster.trouble.struck

    assert trouble(5) == trouble(5) != trouble(6)
    assert [struck.at for struck in trouble(5)][0] == START + faults.FIRST


# -- looking ahead -----------------------------------------------------------------------------------------------------


def live(cluster: SimulatedCluster) -> LiveObserver:
    metrics = SimulatedMetrics(cluster)
    ports = (metrics, cluster.scheduler, SimulatedCheckpoints(cluster), POLICY, lambda: {JOB: (JOB,)}, metrics.details)
    return LiveObserver(*ports)


def ahead(cluster: SimulatedCluster) -> AheadObserver:
    metrics, saves = SimulatedMetrics(cluster), SimulatedCheckpoints(cluster)
    watch: Callable[[], dict[str, tuple[str, ...]]] = lambda: {JOB: (JOB,)}  # noqa: E731
    return AheadObserver(metrics, cluster.scheduler, saves, POLICY, watch, lambda: cluster.record.version)


def told(seen: Observation) -> tuple[object, ...]:
    """What of a look does not depend on how far back it went."""
    scores = {
        n: (s.score, s.hard, min(s.soft_for, 600), [facts(r) for r in s.reasons])
        for n, s in (seen.scores or {}).items()
    }
    return seen.at, seen.cluster, scores, list(map(facts, seen.readings)), seen.checkpoints, seen.sources


def facts(r: Reading) -> tuple[object, ...]:
    """The value of a good reading is nobody's business, and is not told anew each time it moves."""
    return r.node, r.signal, r.state, r.evidence, r.value if r.state == "bad" else None, r.hard, r.known, r.text


@pytest.mark.parametrize("seed", [1, 2])
def test_looking_ahead_shows_what_looking_shows(seed: int) -> None:
    cluster = SimulatedCluster(seed, START)
    far, near, dice, bad = ahead(cluster), live(cluster), Random(seed), 0
    for minute in range(16 * 60):
        after(cluster, MINUTE)
        seen = far.observe(cluster.now)
        bad += sum(r.state == "bad" for r in seen.readings)
        if dice.random() < 0.1:
            assert told(seen) == told(near.observe(cluster.now)), f"minute {minute}"
        sick = sorted(cluster.trouble.sick)
        if sick and dice.random() < 0.01:
            cluster.trouble.repaired(sick[0])
            cluster.scheduler.requeue(JOB, delay=0)
    assert bad > 100


# -- the database ------------------------------------------------------------------------------------------------------


def test_a_kept_database_must_be_new(tmp_path: Path) -> None:
    with demo_database(tmp_path / "kept.db") as database:
        assert database.path.exists()
    with pytest.raises(ConfigError, match="exists already"), demo_database(tmp_path / "kept.db"):
        pass


@pytest.mark.parametrize(("durable", "level"), [(True, 2), (False, 0)])
def test_only_a_database_that_is_thrown_away_need_not_reach_the_disk(tmp_path: Path, durable: bool, level: int) -> None:
    database = Database(tmp_path / "x.db", durable=durable)
    with database.write() as connection:
        assert isinstance(connection, sqlite3.Connection)
        assert connection.execute("pragma synchronous").fetchone()[0] == level
    database.close()
