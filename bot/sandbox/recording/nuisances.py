"""What fools detectors, whatever the jobs do. Numbers in the table are per 55 days of the recording; where the field
has a source for a shape it stands beside it, the rest is what operators tell."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from bot.sandbox.recording.effects import Part
from bot.sandbox.recording.fleet import GPUS, MINUTE
from bot.sandbox.recording.story import Story

INTEGER_BLANK = 9223372036854775794.0  # DCGM_INT64_BLANK
NUMBER_BLANK = 140737488355328.0  # DCGM_FP64_BLANK
RACK = 8  # nodes


def disturb(story: Story) -> None:
    for per_55_days, strike in TABLE:
        for at in story.times(per_55_days):
            strike(story, at)


def _node(story: Story) -> int:
    return story.dice.randrange(len(story.fleet))


def _gpu(story: Story) -> int:
    return story.dice.randrange(len(story.fleet) * GPUS)


def _rack(story: Story) -> Sequence[int]:
    first = story.dice.randrange(0, len(story.fleet), RACK)
    return range(first, min(first + RACK, len(story.fleet)))


# -- telemetry ---------------------------------------------------------------------------------------------------------


def exporter_restart(story: Story, at: int) -> None:
    node, lasts = _node(story), story.dice.randint(20, 150)
    story.effects.silence("dcgm", [node], at, at + lasts)
    story.effects.restart("exporter", node, at + lasts)
    story.noted("exporter_restart", [node], at, at + lasts)


def rollout(story: Story, at: int) -> None:
    """A new exporter everywhere, one node after the other."""
    each = story.dice.randint(5, 30)
    for node in range(len(story.fleet)):
        begins = at + node * each
        story.effects.silence("dcgm", [node], begins, begins + 90)
        story.effects.restart("exporter", node, begins + 90)
    story.noted("exporter_rollout", (), at, at + each * len(story.fleet) + 90)


def exporter_down(story: Story, at: int) -> None:
    node, until = _node(story), at + story.minutes(4, 50)
    part: Part = story.dice.choice(("dcgm", "dcgm", "node"))
    story.effects.silence(part, [node], at, until)
    if part == "dcgm":
        story.effects.restart("exporter", node, until)
    story.noted("exporter_down", [node], at, until)


def lost_scrape(story: Story, at: int) -> None:
    """A scrape that ran into its deadline."""
    story.effects.silence(story.dice.choice(("dcgm", "node")), [_node(story)], at, at + 60)


def gap(story: Story, at: int) -> None:
    """Prometheus itself was away."""
    until = at + story.minutes(2, 40)
    story.effects.silence("scrape", range(len(story.fleet)), at, until)
    story.noted("gap", (), at, until)


def frozen(story: Story, at: int) -> None:
    """The exporter answers, always the same."""
    node, until = _node(story), at + story.minutes(6, 100)
    part: Part = story.dice.choice(("dcgm", "dcgm", "node"))
    story.effects.freeze(part, [node], at, until)
    story.noted("frozen_exporter", [node], at, until)


def blanks(story: Story, at: int) -> None:
    """DCGM has no value for a while and says so with a number (gpu-monitoring-tools 92, DCGM 202)."""
    metrics = story.dice.choice((
        ("DCGM_FI_PROF_PIPE_TENSOR_ACTIVE",), ("DCGM_FI_DEV_GPU_TEMP", "DCGM_FI_DEV_MEMORY_TEMP"),
        ("DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS", "DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS"),
        ("DCGM_FI_DEV_XID_ERRORS",), ("DCGM_FI_DEV_PCIE_REPLAY_COUNTER", "DCGM_FI_DEV_POWER_USAGE"),
        ("DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL", "DCGM_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL"),
    ))  # fmt: skip
    node, until = _node(story), at + story.minutes(1, 240)
    gpus = range(node * GPUS, node * GPUS + GPUS) if story.dice.random() < 0.5 else [_gpu(story)]
    for metric in metrics:
        whole = "_FI_PROF_" not in metric and "POWER" not in metric
        story.effects.hold(metric, gpus, at, until, INTEGER_BLANK if whole else NUMBER_BLANK)
    story.noted("blanks", sorted({gpu // GPUS for gpu in gpus}), at, until)


def garbage(story: Story, at: int) -> None:
    """One sample that cannot be."""
    metric, value = story.dice.choice((
        ("DCGM_FI_DEV_GPU_TEMP", 255), ("DCGM_FI_DEV_GPU_TEMP", 0), ("DCGM_FI_DEV_POWER_USAGE", 4.1e6),
        ("DCGM_FI_DEV_SM_CLOCK", 0), ("DCGM_FI_DEV_SM_CLOCK", 65535), ("DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", 0),
        ("DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS", 512), ("DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS", 65535),
        ("DCGM_FI_DEV_PCIE_REPLAY_COUNTER", 4294967295), ("DCGM_FI_DEV_PCIE_LINK_WIDTH", 0),
        ("DCGM_FI_DEV_ROW_REMAP_FAILURE", 4294967295), ("DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", 2147483632),
        ("DCGM_FI_DEV_CLOCKS_EVENT_REASONS", 0xFFFF), ("DCGM_FI_DEV_XID_ERRORS", 2147483632),
    ))  # fmt: skip
    story.effects.hold(metric, [_gpu(story)], at, at + 60, value)


def clock_skew(story: Story, at: int) -> None:
    """A node's clock runs away until somebody restarts its time service."""
    node, until, off = _node(story), at + story.hours(2, 30), story.dice.choice((-1, 1)) * story.dice.uniform(3, 240)
    for metric in ("node_time_seconds", "node_timex_offset_seconds"):
        story.effects.change(metric, [node], at, until, "add", off, 1800)
    story.noted("clock_skew", [node], at, until)


def newcomers(story: Story) -> None:
    """The last spare is delivered later."""
    if story.days < 3 or len(story.fleet) < 8:
        return
    node, until = len(story.fleet) - 1, story.start + story.hours(12, 24 * min(story.days / 2, 20))
    story.effects.silence("scrape", [node], story.start - 86_400, until)
    story.taken.append((node, story.start - 86_400, until))
    story.noted("node_added", [node], until, until)


# -- hardware that is well, or not worth a word ------------------------------------------------------------------------


def few_remaps(story: Story, at: int) -> None:
    gpu = _gpu(story)
    for _ in range(story.dice.choice((1, 1, 1, 2, 3))):
        story.effects.rise("DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS", gpu, at, story.dice.choice((1, 1, 1, 2)))
        at += story.hours(0.1, 20)


def replays(story: Story, at: int) -> None:
    story.effects.rise("DCGM_FI_DEV_PCIE_REPLAY_COUNTER", _gpu(story), at, story.dice.choice((1, 1, 1, 2, 5, 40)))


def link_noise(story: Story, at: int) -> None:
    kind = story.dice.choice(("CRC_FLIT", "REPLAY"))
    story.effects.rise(f"DCGM_FI_DEV_NVLINK_{kind}_ERROR_COUNT_TOTAL", _gpu(story), at, story.dice.choice((1, 1, 2, 6)))


def edac(story: Story, at: int) -> None:
    story.effects.rise("node_edac_correctable_errors_total", _node(story), at, story.dice.choice((1, 1, 2, 8, 60)))


def port_flap(story: Story, at: int) -> None:
    port = _gpu(story)
    story.effects.rise("node_infiniband_link_downed_total", port, at)
    for what in ("symbol_error", "port_errors_received"):
        story.effects.rise(f"node_infiniband_{what}_total", port, at, story.dice.randint(1, 40))


def switch_blip(story: Story, at: int) -> None:
    """A leaf switch restarts a line card: the same ports of a whole rack."""
    rack, until = _rack(story), at + story.dice.randint(20, 150)
    ports = [node * GPUS + rail for node in rack for rail in story.dice.sample(range(GPUS), 2)]
    for port in ports:
        story.effects.rise("node_infiniband_link_downed_total", port, at + story.dice.randint(0, 30))
        story.effects.rise("node_infiniband_symbol_error_total", port, at + 30, story.dice.randint(1, 90))
        story.effects.rise("node_infiniband_port_errors_received_total", port, at + 30, story.dice.randint(1, 90))
    for way in ("transmitted", "received"):
        story.effects.change(f"node_infiniband_port_data_{way}_bytes_total", ports, at, until, "scale", 0.05)
    story.noted("switch_blip", rack, at, until)


def power_cap(story: Story, at: int) -> None:
    """The building asks for less: everywhere, or a rack."""
    nodes = story.dice.choice((_rack(story), range(len(story.fleet))))
    gpus = [gpu for node in nodes for gpu in range(node * GPUS, node * GPUS + GPUS)]
    until, cap = at + story.hours(0.5, 7), story.dice.uniform(0.72, 0.93)
    story.effects.change("DCGM_FI_DEV_POWER_USAGE", gpus, at, until, "scale", cap, 120)
    story.effects.change("DCGM_FI_DEV_SM_CLOCK", gpus, at, until, "scale", 1 - (1 - cap) * 0.6, 120)
    story.effects.change("DCGM_FI_DEV_CLOCKS_EVENT_REASONS", gpus, at, until, "bit", 0x4)
    story.noted("power_cap", nodes, at, until)


def warm_air(story: Story, at: int) -> None:
    """A rack's cooling is regulated: warmer for all of it, and nothing slows down."""
    rack, until = _rack(story), at + story.hours(0.5, 4)
    gpus = [gpu for node in rack for gpu in range(node * GPUS, node * GPUS + GPUS)]
    for metric in ("DCGM_FI_DEV_GPU_TEMP", "DCGM_FI_DEV_MEMORY_TEMP"):
        story.effects.change(metric, gpus, at, until, "add", story.dice.uniform(3, 9), 900)
    story.noted("warm_air", rack, at, until)


def short_throttle(story: Story, at: int) -> None:
    """A minute of a thermal or power reason on one GPU, as every big cluster shows."""
    gpu, until = _gpu(story), at + story.dice.randint(60, 200)
    story.effects.change("DCGM_FI_DEV_CLOCKS_EVENT_REASONS", [gpu], at, until, "bit", story.dice.choice((0x8, 0x20)))
    story.effects.change("DCGM_FI_DEV_SM_CLOCK", [gpu], at, until, "scale", story.dice.uniform(0.7, 0.95))


# -- the host ----------------------------------------------------------------------------------------------------------


def out_of_memory(story: Story, at: int) -> None:
    node = _node(story)
    story.effects.rise("node_vmstat_oom_kill", node, at, story.dice.choice((1, 1, 3)))
    story.effects.change("node_memory_MemAvailable_bytes", [node], at - 20 * MINUTE, at, "scale", 0.02, 18 * MINUTE)
    story.noted("oom_kill", [node], at, at)


def full_disk(story: Story, at: int) -> None:
    """Somebody's logs, until somebody deletes them."""
    node, until = _node(story), at + story.hours(3, 30)
    left = story.dice.uniform(0.03, 0.2)
    story.effects.change("node_filesystem_avail_bytes", [node], at, until, "scale", left, 3 * 3600)
    story.noted("disk_filling", [node], at, until)


def noisy_host(story: Story, at: int) -> None:
    """A backup, a package update: interrupts, processes or page-out of one node go their own way."""
    node, until = _node(story), at + story.minutes(2, 25)
    metric = story.dice.choice(("node_intr_total", "node_procs_running", "node_vmstat_pgpgout",
                                "node_context_switches_total"))  # fmt: skip
    most = 12 if metric == "node_vmstat_pgpgout" else 2.5
    story.effects.change(metric, [node], at, until, "scale", story.dice.uniform(1.3, most))
    story.noted("noisy_host", [node], at, until)


def slow_answers(story: Story, at: int) -> None:
    """One node's or everybody's GETATTR takes longer for a moment."""
    nodes = story.dice.choice(([_node(story)], range(len(story.fleet))))
    until = at + story.minutes(1, 8)
    story.effects.change("nfs/rtt/GETATTR", nodes, at, until, "scale", story.dice.uniform(2, 8))
    story.noted("slow_getattr", nodes, at, until)


TABLE: Sequence[tuple[float, Callable[[Story, int], None]]] = (
    (24, exporter_restart), (3, rollout), (9, exporter_down), (900, lost_scrape), (5, gap), (7, frozen), (14, blanks),
    (32, garbage), (2, clock_skew), (40, few_remaps), (60, replays), (40, link_noise), (40, edac), (10, port_flap),
    (5, switch_blip), (3, power_cap), (3, warm_air), (14, short_throttle), (5, out_of_memory), (3, full_disk),
    (20, noisy_host), (14, slow_answers),
)  # fmt: skip
