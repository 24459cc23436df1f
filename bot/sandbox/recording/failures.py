"""Hardware that fails, in the study's shapes (arXiv 2605.09370 §4 as its readers retell it): severities and durations
vary from plain to hardly visible, and part of the evidence may be missing, because no two faults of the field agree."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from bot.sandbox.recording.fleet import GPUS, HOUR, MINUTE
from bot.sandbox.recording.story import Ending, Scene

Shape = Callable[[Scene], Ending]
DCGM_BLANK = 140737488355328.0  # DCGM_FP64_BLANK: "no value"
LONG = 60 * 86_400


# -- with an Xid -------------------------------------------------------------------------------------------------------


def bus(s: Scene) -> Ending:
    """A GPU falls off the bus."""
    gpu, end = s.dice.choice(s.gpus()), s.down()
    until = end.away[0][1]
    if s.dice.random() < 0.3:
        _creep(s, "DCGM_FI_DEV_PCIE_REPLAY_COUNTER", gpu, s.story.hours(1, 8), s.dice.uniform(0.2, 8))
    _collapse(s, until, s.dice.random() < 0.7)
    fate = s.dice.random()
    if fate >= 0.1:  # now and then the GPU is gone before anybody could read its Xid
        s.effects.xid(gpu, s.at + s.dice.randint(0, 30), 79)
    if fate < 0.55:
        s.effects.lose([gpu], s.at + (0 if fate < 0.1 else s.story.minutes(1, 6)), until)
    elif fate < 0.8:
        s.effects.silence("dcgm", [s.node], s.at + s.story.minutes(1, 4), until)
    else:
        _blanks(s, gpu, until)
    _others(s, gpu, 45, 0.5)
    return s.fail("bus", gpu, 79, end, "bus")


def nvlink(s: Scene) -> Ending:
    """A link dies; its neighbours complain, the rest is cleaned up."""
    gpu, end, code = s.dice.choice(s.gpus()), s.down(kill=0.65), s.dice.choice((149, 145, 149, 74, 155))
    if s.dice.random() < 0.35:
        metric = s.dice.choice(("DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL",
                                "DCGM_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL",
                                "DCGM_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL"))  # fmt: skip
        _creep(s, metric, gpu, s.story.hours(2, 12), s.dice.uniform(0.1, 5))
    s.effects.rise("DCGM_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL", gpu, s.at, s.dice.randint(1, 40))
    _collapse(s, end.away[0][1], s.dice.random() < 0.6)
    for other in s.dice.sample(s.gpus(), s.dice.randint(0, 3)):
        s.effects.xid(other, s.at + s.dice.randint(0, 20), code)
    s.effects.xid(gpu, s.at + s.dice.randint(0, 20), code)
    _others(s, gpu, 45, 0.7)
    return s.fail("nvlink", gpu, code, end, "nvlink")


def uncontained(s: Scene) -> Ending:
    """Memory that cannot be corrected: GETATTR latency and page-out spike at the fault (the study's gpu096)."""
    gpu, end, code = s.dice.choice(s.gpus()), s.down(kill=0.8), s.dice.choice((95, 48, 95, 140))
    if s.dice.random() < 0.7:
        s.effects.rise("DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", gpu, s.at, s.dice.randint(1, 2))
    s.effects.rise("DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS", gpu, s.at, s.dice.randint(1, 3))
    s.effects.rise("DCGM_FI_DEV_ROW_REMAP_PENDING", gpu, s.at)
    s.effects.xid(gpu, s.at + s.dice.randint(0, 30), code)
    if s.dice.random() < 0.25:
        s.effects.rise("DCGM_FI_DEV_ROW_REMAP_FAILURE", gpu, s.at + s.dice.randint(0, 60))
    _spikes(s)
    return s.fail("ecc", gpu, code, end, "uncontained")


def contained(s: Scene) -> Ending:
    """Uncorrectable remaps step up together with Xid 94, run after run, until the GPU is dead (gpu122)."""
    gpu = s.node * GPUS + (s.node * 5 + 3) % GPUS  # the same each time
    s.effects.rise("DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS", gpu, s.at, s.dice.randint(1, 4))
    s.effects.xid(gpu, s.at + s.dice.randint(0, 30), 95 if s.last and s.dice.random() < 0.4 else 94)
    stops = s.at + s.dice.randint(5, 60)
    if not s.last:
        s.effects.restart("exporter", s.node, stops + 5 * MINUTE)  # so that the gauge can show the next
        return Ending(stops, stops + s.dice.randint(20, 90))
    _spikes(s)
    away = ((s.node, stops + s.story.hours(4, 40)),)
    return s.fail("ecc", gpu, 94, Ending(stops, stops + s.dice.randint(20, 90), away=away), "contained")


def gsp(s: Scene) -> Ending:
    """The GPU's own processor stops answering; so does all that DCGM asks of it."""
    gpu, end, code = s.dice.choice(s.gpus()), s.down(kill=0.3), s.dice.choice((119, 120))
    s.effects.xid(gpu, s.at + s.dice.randint(0, 45), code)
    _blanks(s, gpu, end.away[0][1])
    _collapse(s, end.away[0][1], plain=False)
    return s.fail("gsp", gpu, code, end, "gsp")


# -- without a code ----------------------------------------------------------------------------------------------------


def vanished(s: Scene) -> Ending:
    """A GPU is gone and nothing says so."""
    gpu, end = s.dice.choice(s.gpus()), s.down(kill=0.4)
    s.effects.lose([gpu], s.at, end.away[0][1])
    if s.dice.random() < 0.5:
        _collapse(s, end.away[0][1], plain=False)
    return s.fail("bus", gpu, None, end, "vanished")


def vanished_after_remaps(s: Scene) -> Ending:
    """Hundreds of rows remapped over weeks, not one Xid, then gone (gpu124: 254 rows in 55 days)."""
    gpu, end = s.dice.choice(s.gpus()), s.down(kill=0.4)
    total, began = s.dice.randint(90, 260), s.at - min(s.at - s.story.start, s.dice.randint(20, 55) * 86_400)
    while total > 0:
        rows = min(total, s.dice.choice((1, 1, 1, 2, 2, 3)))
        # later moments are likelier: what wears out, wears out faster
        moment = began + round((s.at - began) * s.dice.random() ** s.dice.choice((1.0, 0.6)))
        s.effects.rise("DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS", gpu, moment, rows)
        total -= rows
    s.effects.lose([gpu], s.at, end.away[0][1])
    return s.fail("ecc", gpu, None, end, "vanished_after_remaps")


def slow_thermal(s: Scene) -> Ending:
    """Cooling is lost: hotter, slower, with the driver's reason shown or not."""
    gpus, end = _some(s), _noticed(s)
    ramp = s.story.minutes(2, 15)
    slow = s.dice.uniform(0.5, 0.88)
    for metric in ("DCGM_FI_DEV_GPU_TEMP", "DCGM_FI_DEV_MEMORY_TEMP"):
        s.effects.change(metric, gpus, s.at, end.away[0][1] - HOUR, "add", s.dice.uniform(9, 24), ramp)
    _slower(s, gpus, end, slow, power=s.dice.uniform(slow, 0.97), ramp=ramp)
    if s.dice.random() < 0.75:
        _reason(s, gpus, end, s.dice.choice((0x20, 0x40, 0x48)), s.at + ramp)
    return s.fail("thermal", gpus[0] if len(gpus) == 1 else None, None, end, "slow_thermal")


def slow_power(s: Scene) -> Ending:
    """A power supply brakes the board."""
    gpus, end = _some(s), _noticed(s)
    slow = s.dice.uniform(0.45, 0.85)
    _slower(s, gpus, end, slow, power=s.dice.uniform(0.5, 0.85))
    if s.dice.random() < 0.6:
        _reason(s, gpus, end, s.dice.choice((0x80, 0x88)), s.at)
    return s.fail("power", gpus[0] if len(gpus) == 1 else None, None, end, "slow_power")


def slow_pcie(s: Scene) -> Ending:
    """A GPU's link to the host comes up narrower, and repeats what it sends."""
    gpu, end = s.dice.choice(s.gpus()), _noticed(s)
    until = end.away[0][1] - HOUR
    if s.dice.random() < 0.8:
        s.effects.change("DCGM_FI_DEV_PCIE_LINK_WIDTH", [gpu], s.at, until, "set", s.dice.choice((8, 8, 4, 1)))
    _replays(s, gpu, s.at, until, s.dice.uniform(0.3, 30))
    slow = s.dice.uniform(0.55, 0.9)
    _busy(s, [gpu] if s.dice.random() < 0.5 else s.gpus(), end, slow, s.dice.uniform(slow, 0.97))
    return s.fail("bus", gpu, None, end, "slow_pcie")


def slow_fabric(s: Scene) -> Ending:
    """One port of a node flaps or drops what it gets."""
    port, end = s.dice.choice(s.gpus()), _noticed(s)
    until, at = end.away[0][1] - HOUR, s.at
    flaps = s.dice.random() < 0.6
    while at < min(until, s.at + 12 * HOUR):
        if flaps:
            s.effects.rise("node_infiniband_link_downed_total", port, at, 1)
            s.effects.rise("node_infiniband_link_error_recovery_total", port, at, s.dice.randint(1, 3))
        for what in ("symbol_error", "port_errors_received"):
            s.effects.rise(f"node_infiniband_{what}_total", port, at, s.dice.randint(2, 300))
        at += s.story.minutes(1, 12)
    for way in ("transmitted", "received"):
        s.effects.change(f"node_infiniband_port_data_{way}_bytes_total", [port], s.at, until, "scale",
                         s.dice.uniform(0.1, 0.7))  # fmt: skip
    slow = s.dice.uniform(0.6, 0.92)
    _busy(s, s.gpus(), end, slow, s.dice.uniform(slow, 0.98))
    return s.fail("fabric", None, None, end, "slow_fabric")


def slow_host(s: Scene) -> Ending:
    """The host cannot feed its GPUs: a runaway process, memory that corrects errors all the time."""
    end = _noticed(s)
    until = end.away[0][1] - HOUR
    slow = s.dice.uniform(0.45, 0.85)
    _busy(s, s.gpus(), end, slow, s.dice.uniform(slow, 0.95))
    if s.dice.random() < 0.6:
        at = s.at - s.story.hours(0, 3)
        while at < min(until, s.at + 12 * HOUR):
            s.effects.rise("node_edac_correctable_errors_total", s.node, at, s.dice.randint(1, 400))
            at += s.story.minutes(1, 9)
    s.effects.change("node_context_switches_total", [s.node], s.at, until, "scale", s.dice.choice((0.4, 0.6, 2.5)))
    s.effects.change("node_procs_running", [s.node], s.at, until, "scale", s.dice.choice((0.4, 0.6, 3.0)))
    s.effects.change("node_intr_total", [s.node], s.at, until, "scale", s.dice.uniform(0.45, 0.9))
    return s.fail("host", None, None, end, "slow_host")


WITH_XID: Mapping[str, Shape] = {
    "bus": bus, "nvlink": nvlink, "uncontained": uncontained, "contained": contained, "gsp": gsp,
}  # fmt: skip
WITHOUT: Mapping[str, Shape] = {
    "vanished_after_remaps": vanished_after_remaps, "vanished": vanished, "slow_thermal": slow_thermal,
    "slow_power": slow_power, "slow_pcie": slow_pcie, "slow_fabric": slow_fabric, "slow_host": slow_host,
}  # fmt: skip
XID_DECK = ("nvlink", "nvlink", "nvlink", "bus", "bus", "uncontained", "uncontained", "contained", "gsp", "nvlink")
OTHER_DECK = tuple(WITHOUT)


# -- what they are made of ---------------------------------------------------------------------------------------------


def _collapse(s: Scene, until: int, plain: bool) -> None:
    """Interrupts 300 K → 70-100 K in 30 s and runnable processes → 0 at the fault (gpu071); not always so plainly."""
    left = s.dice.uniform(0.22, 0.36) if plain else s.dice.uniform(0.4, 0.75)
    s.effects.change("node_intr_total", [s.node], s.at, until, "scale", left)
    s.effects.change("node_context_switches_total", [s.node], s.at, until, "scale", s.dice.uniform(0.2, 0.7))
    if plain or s.dice.random() < 0.5:
        s.effects.change("node_procs_running", [s.node], s.at, until, "set", s.dice.choice((0.0, 0.0, 0.3)))
    for metric in ("DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", "DCGM_FI_DEV_GPU_UTIL"):
        s.effects.change(metric, s.gpus(), s.at, until, "scale", 0.0)


def _spikes(s: Scene) -> None:
    for metric, low, high in (("nfs/rtt/GETATTR", 5, 40), ("node_vmstat_pgpgout", 6, 30)):
        s.effects.change(metric, [s.node], s.at, s.at + s.story.minutes(3, 12), "scale", s.dice.uniform(low, high))


def _creep(s: Scene, metric: str, column: int, before: int, per_minute: float) -> None:
    """Errors that add up towards the fault."""
    at = max(s.at - before, s.story.start)
    while at < s.at:
        s.effects.rise(metric, column, at, s.dice.randint(1, 4))
        left = (s.at - at) / before
        at += max(MINUTE, round(s.dice.expovariate(per_minute / (0.3 + 2 * left)) * MINUTE))


def _replays(s: Scene, gpu: int, start: int, until: int, per_minute: float) -> None:
    at = start
    while at < min(until, start + 12 * HOUR):
        gap = s.story.minutes(1, 5)
        s.effects.rise("DCGM_FI_DEV_PCIE_REPLAY_COUNTER", gpu, at, max(1, round(per_minute * gap / MINUTE)))
        at += gap


def _blanks(s: Scene, gpu: int, until: int) -> None:
    for metric in ("DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", "DCGM_FI_DEV_POWER_USAGE", "DCGM_FI_DEV_SM_CLOCK"):
        s.effects.hold(metric, [gpu], s.at + s.story.minutes(0, 3), until, DCGM_BLANK)


def _others(s: Scene, gpu: int, code: int, chance: float) -> None:
    """The driver cleans up after the first error: 45 on the GPUs beside it."""
    if s.dice.random() < chance:
        for other in s.gpus():
            if other != gpu and not any(x.column == other and s.at <= x.at <= s.at + 60 for x in s.effects.xids):
                s.effects.xid(other, s.at + s.dice.randint(20, 60), code)


def _some(s: Scene) -> tuple[int, ...]:
    return s.gpus() if s.dice.random() < 0.5 else tuple(s.dice.sample(s.gpus(), s.dice.choice((1, 2, 4))))


def _noticed(s: Scene) -> Ending:
    """A slow run goes on until a person has seen it."""
    stops = s.at + s.story.hours(1.5, 10)
    return Ending(stops, stops + s.dice.randint(10, 90), "CANCELLED", ((s.node, stops + s.story.hours(3, 30)),))


def _slower(s: Scene, gpus: tuple[int, ...], end: Ending, slow: float, power: float, ramp: int = 0) -> None:
    """A lower clock. The step takes longer for all, so the others' activity falls; the slow one is as busy as before,
    or less so where its work is not the step's longest part."""
    until = end.away[0][1] - HOUR
    s.effects.change("DCGM_FI_DEV_SM_CLOCK", gpus, s.at, until, "scale", slow, ramp)
    s.effects.change("DCGM_FI_DEV_POWER_USAGE", gpus, s.at, until, "scale", power, ramp)
    own = s.dice.choice((1.0, 0.8, slow))
    _busy(s, gpus, end, own, 1.0, ramp)
    if s.dice.random() < 0.6:
        rest = [gpu for node in s.nodes if node != s.node for gpu in s.gpus(node)]
        lag = 1 - (1 - slow) * s.dice.uniform(0.2, 1)
        s.effects.change("DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", rest, s.at, end.stops, "scale", lag, ramp)


def _busy(s: Scene, gpus: tuple[int, ...] | list[int], end: Ending, slow: float, power: float, ramp: int = 0) -> None:
    until = end.away[0][1] - HOUR
    s.effects.change("DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", gpus, s.at, until, "scale", slow, ramp)
    s.effects.change("DCGM_FI_DEV_POWER_USAGE", gpus, s.at, until, "scale", power, ramp)


def _reason(s: Scene, gpus: tuple[int, ...], end: Ending, bits: int, start: int) -> None:
    s.effects.change("DCGM_FI_DEV_CLOCKS_EVENT_REASONS", gpus, start, end.away[0][1] - HOUR, "bit", bits)
