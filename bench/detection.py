"""`detection`: recordings with known failures, replayed in memory: what is found, what is cried out for nothing, and
what the usual rules make of the same data.

`python -m bench.detection --seeds 20` measures the 55 days of the study on 20 seeds; `make bench` a short piece.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import Any

from bench.baselines import baselines
from bot import policy as policies
from bot.backtest import Alarm
from bot.backtest_report import HARDWARE, Report, report
from bot.backtest_run import Asked, outcome, watching
from bot.config import PrometheusSite
from bot.plans import STEPS
from bot.sandbox.recording import Recording
from bot.sandbox.recording.fleet import STEP
from bot.sandbox.recording.memory import RecordedMetrics
from playbooks import load

NODES, DAYS, SEEDS = 63, 55, 20
SHORT_DAYS, SHORT_SEEDS = 10, 2
PROCESSES = 2
LATE = 900  # s after an application's fault within which an alarm of the node is about it
FIGURES = ("xid", "other", "false")


@dataclass(frozen=True)
class Found:
    """Of one seed. xid, other: failures found, with a code and without; false: alarms a day for nothing."""

    xid: int
    xid_of: int
    other: int
    other_of: int
    false: float
    application: int = 0


def detection(say: Callable[[str], None], seeds: int, days: int, nodes: int = NODES) -> dict[str, Any]:
    """Medians and worst over the seeds 1 … seeds."""
    with ProcessPoolExecutor(PROCESSES) as pool:
        found = []
        for seed, one in enumerate(pool.map(partial(_seed, days=days, nodes=nodes), range(1, seeds + 1)), 1):
            say(f"  seed {seed}: {one['xidbot']}")
            found.append(one)
    ours = [one["xidbot"] for one in found]
    others = [name for name in found[0] if name != "xidbot"]
    return {
        "seeds": seeds,
        "days": days,
        **_figures(ours),
        "application_called_hardware": sum(one.application for one in ours),
        "baselines": {name: _figures([one[name] for one in found]) for name in others},
    }


def _figures(found: Sequence[Found]) -> dict[str, float]:
    figures: dict[str, float] = {}
    for name in FIGURES:
        values = [getattr(one, name) for one in found]
        figures |= {f"{name}_median": median(values), f"{name}_worst": max(values) if name == "false" else min(values)}
    return figures | {"xid_of": median(one.xid_of for one in found), "other_of": median(one.other_of for one in found)}


def _seed(seed: int, days: int, nodes: int) -> Mapping[str, Found]:
    recording = Recording(seed, days, nodes)
    alarms = {"xidbot": _ours(recording), **baselines(recording)}
    return {name: _judged(recording, found) for name, found in alarms.items()}


def _ours(recording: Recording) -> Sequence[Alarm]:
    policy = watching(policies.build(playbooks=load(None, STEPS)), STEP)
    nowhere = PrometheusSite(url="http://memory")
    wanted = Asked(nowhere, policy, recording.start, recording.end, recording.runs, recording.labels)
    return outcome(wanted, RecordedMetrics(recording), lambda at: None).alarms


def _judged(recording: Recording, alarms: Sequence[Alarm]) -> Found:
    told = report(alarms, recording.labels, recording.start, recording.end, STEP)
    return Found(
        xid=_detected(told, True),
        xid_of=sum(found.label.xid is not None for found in told.found),
        other=_detected(told, False),
        other_of=sum(found.label.xid is None for found in told.found),
        false=round(len(told.false) / told.days, 3),
        application=sum(_about_a_program(recording, alarm) for alarm in told.false if alarm.kind == "gpu_fault"),
    )


def _detected(told: Report, coded: bool) -> int:
    return sum((found.label.xid is not None) == coded for found in told.detected)


def _about_a_program(recording: Recording, alarm: Alarm) -> bool:
    assert alarm.kind in HARDWARE
    return any(
        fault.node == alarm.node and fault.start <= alarm.start <= fault.end + LATE for fault in recording.application
    )


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--seeds", type=int, default=SEEDS)
    options.add_argument("--days", type=int, default=DAYS)
    options.add_argument("--nodes", type=int, default=NODES)
    asked = options.parse_args()
    figures = detection(lambda text: print(text, file=sys.stderr, flush=True), asked.seeds, asked.days, asked.nodes)
    print(json.dumps({"detection": figures}))


if __name__ == "__main__":
    main()
