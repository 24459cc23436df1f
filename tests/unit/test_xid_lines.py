"""What a line of a kernel log says about a GPU, in every form that drivers and loggers write it."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.signals.xid_lines import XidLine, gpu_uuid, named_gpu, parse

SHARED = Path(__file__).parents[2].parent / "shared" / "data" / "xid" / "xid_lines.jsonl"

OFF_BUS = "NVRM: Xid (PCI:0000:c1:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."
GSP = "NVRM: Xid (PCI:0000:9b:00): 119, pid=4071, name=python3, Timeout after 45s of waiting for RPC response from GPU4 GSP!"
RECOVERY = "NVRM: Xid (PCI:0009:01:00): 154, GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)"
FATAL_SXID = "nvidia-nvswitch3: SXid (PCI:0000:c6:00.0): 20034, Fatal, Link 30 LTSSM Fault Up"
MIG = "NVRM: Xid (PCI:0000:3b:00 GPU-I:05 GPU-CI:02): 94, pid=7194, name=a, Contained: CE User Channel (0x9). RST: No"
NVLINK5 = "NVRM: Xid (PCI:0018:01:00): 145, pid=87, name=ray::Worker, RLW_RXPIPE Nonfatal XC0 i0 Link 13 (0x0409a0c2 0x00000008 0x1)"
LOST_IN_ONE = (
    "NVRM: The NVIDIA GPU 0000:b3:00.0\nNVRM: (PCI ID: 10de:26b5) installed in this system has\n"
    "NVRM: fallen off the bus and is not responding to commands."
)
LINES = (OFF_BUS, GSP, RECOVERY, FATAL_SXID, MIG, NVLINK5)


def told(line: str) -> XidLine:
    found = parse(line)
    assert found is not None, line
    return found


def differing(line: str) -> dict[str, object]:
    """What a line tells beyond its kind, without what it leaves open."""
    default = asdict(XidLine("xid"))
    return {k: v for k, v in asdict(told(line)).items() if v != default[k] and k not in ("text", "kind")}


FORMS = [
    (OFF_BUS, {"code": 79, "pci": "0000:c1:00"}),
    ("NVRM: Xid (PCI:0000:c1:00): 79, pid=<unknown>, name='<unknown>', GPU has fallen off the bus.", {"code": 79, "pci": "0000:c1:00"}),
    (GSP, {"code": 119, "pci": "0000:9b:00", "pid": 4071, "process": "python3"}),
    ("NVRM: Xid (0000:82:00): 13, 0003 00000000 0000a1c0 00001b0c", {"code": 13, "pci": "0000:82:00"}),
    ("NVRM: Xid (0082:00): 13, 0003 00000000", {"code": 13, "pci": "0082:00"}),
    ("NVRM: Xid: 62, 203c(3090) 85020c09", {"code": 62}),
    ("NVRM: Xid (PCI:00000000:C1:00.0): 48, DBE", {"code": 48, "pci": "0000:c1:00"}),
    ("NVRM: Xid (PCI:...): 137, RLW_RXPIPE interrupt hit on link 11", {"code": 137}),
    ("NVRM: Xid (PCI:000f:01:00): 31, pid=1, name=KMS thread, Ch 00000008", {"code": 31, "pci": "000f:01:00", "pid": 1, "process": "KMS thread"}),
    ("NVRM: Xid (PCI:0000:01:00): 31, pid=1, name='my \"app\" [x]', Ch 8", {"code": 31, "pci": "0000:01:00", "pid": 1, "process": 'my "app" [x]'}),
    ("NVRM: Xid (PCI:0000:01:00): 31, pid=1, name=(sd-pam), Ch 8", {"code": 31, "pci": "0000:01:00", "pid": 1, "process": "(sd-pam)"}),
    ("NVRM: Xid (PCI:0000:01:00): 31, pid=1, name=a,b c, Ch 8", {"code": 31, "pci": "0000:01:00", "pid": 1, "process": "a,b c"}),
    (MIG, {"code": 94, "pci": "0000:3b:00", "pid": 7194, "process": "a", "gpu_instance": "05", "compute_instance": "02"}),
    ("NVRM: Xid (PCI:0000:3b:00, GPU instance 3): 43, pid=9, Ch 8", {"code": 43, "pci": "0000:3b:00", "pid": 9, "gpu_instance": "3"}),
    ("NVRM: Xid (PCI:0000:3b:00 GI/CI: 3/1): 43, pid=9, Ch 8", {"code": 43, "pci": "0000:3b:00", "pid": 9, "gpu_instance": "3", "compute_instance": "1"}),
    ("NVRM: Xid (PCI:0000:dc:00): 45, pid=18, name=p, Ch 00000001 caused by previous Xid 149", {"code": 45, "pci": "0000:dc:00", "pid": 18, "process": "p", "caused_by": 149}),
    (NVLINK5, {"code": 145, "pci": "0018:01:00", "pid": 87, "process": "ray::Worker", "fatal": False, "link": 13, "registers": (0x0409A0C2, 8, 1), "action": "none"}),
    ("NVRM: Xid (PCI:0018:01:00): 149, NETIR Fatal XC0 i0 Link -1 (0x000fe406", {"code": 149, "pci": "0018:01:00", "fatal": True, "link": -1, "action": "reset"}),
    ("NVRM: Xid (PCI:0000:5f:00): 145, RLW_REMAP Nonfatal XC0 i0 Link 02 (...)", {"code": 145, "pci": "0000:5f:00", "fatal": False, "link": 2}),
    ("NVRM: Xid (PCI:0018:01:00): 149, NETIR_BER_EVENT Nonfatal XC0 i0 Link 03 (0x1 0x2)", {"code": 149, "pci": "0018:01:00", "fatal": False, "link": 3, "registers": (1, 2), "action": "none"}),
    (FATAL_SXID, {"code": 20034, "pci": "0000:c6:00.0", "fatal": True}),
    ("nvidia-nvswitch0: SXid (PCI:0000:c3:00.0): 20009, Non-fatal, Link 28 RX Short Error Rate", {"code": 20009, "pci": "0000:c3:00.0", "fatal": False}),
    ("nvidia-nvswitch0: SXid (PCI:0000:c3:00.0): 20034, Severity 1 Engine instance 60", {"code": 20034, "pci": "0000:c3:00.0", "fatal": True}),
    ("nvidia-nvswitch0: SXid (PCI:0000:c3:00.0): 20034, Data {0x10000000, 0x0}", {"code": 20034, "pci": "0000:c3:00.0"}),
    ("[Tue Apr 22 23:22:23 UTC 2025][7][00] XID 95 Uncontained: FBHUB. RST: Yes; D-RST: No", {"code": 95, "via": "bmc"}),
]  # fmt: skip


@pytest.mark.parametrize(("line", "says"), FORMS, ids=[line[:60] for line, _ in FORMS])
def test_every_form_gives_what_it_tells_and_nothing_else(line: str, says: dict[str, object]) -> None:
    assert differing(line) == says


PREFIXES = [
    "[6781741.548779] ", "[  130.456250] [ T1946] ", "[Sun Feb 23 16:24:18 2025] ", "kern  :warn  : 2025-01-21T04:41:44,283302+00:00 ",
    "Aug 10 15:36:05 gpu-node-01 kernel: ", "May 19 07:08:57 node-2 kernel: [680111.646286] ", "2026-10-04T14:16:55+03:00 host01 kernel: ",
    "<4>1 2026-10-04T14:16:55.003Z host01 kernel - - - ", "Okt 06 17:59:27 host01 kernel: ", "kernel: ", "<6>", "3,1042,8462102,-;",
    "diff:371;", "[gpu-health] [WARN] GPU-0000: XID: ", "Oct  6 17:59:27 node-3 kernel: message repeated 2 times: [ ",
]  # fmt: skip


@pytest.mark.parametrize("prefix", PREFIXES)
@pytest.mark.parametrize("line", LINES, ids=[line[:40] for line in LINES])
def test_what_stands_before_it_changes_nothing(prefix: str, line: str) -> None:
    assert differing(prefix + line) | {"lead": ""} == differing(line) | {"lead": ""}


@pytest.mark.parametrize(
    "prefix", ["", "[6781741.548779] ", "[  130.456250] [ T1946] ", "kernel: [123.456789] ", "[...] "]
)
def test_the_kernels_own_stamps_are_no_quotation(prefix: str) -> None:
    assert told(prefix + OFF_BUS).lead == ""
    assert told(prefix + "slurmd: epilog: " + OFF_BUS).lead == "slurmd: epilog:"


NONE = [
    "NVRM: Xid error: xyz, invalid data",
    "NVRM: Xid (invalid): some error",
    "NVRM: Xid (invalid): 79, some error",
    "NVRM: Xid (PCI:0000:66:00): abc, pid=2280636",
    "NVRM: Xid (PCI:0000:66:00): 0, nothing",
    "NVRM: Xid (PCI:0000:66:00): 1790, pid=2280636",
    "NVRM: Xid (PCI:0000:c1:00): 7",
    "NVRM: Xid (PCI:0000:c1:00): 79",
    "NVRM: Xid (PCI:0000:c1",
    "NVRM: Xid",
    "Xid 79 on node-17",
    "dcgm: XID 79 detected",
    "python[12]: XID 95 Uncontained",
    "nvidia-nvswitch0: SXid (PCI:0000:00:00.0): xyz, Fatal error",
    "nvidia-nvswitch0: SXid (PCI:0000:00:00.0): 2003",
    "bash[99]: root: grep 'NVRM: Xid (PCI:0000:c1:00): 79, ' /var/log/syslog",
    '{"MESSAGE":"NVRM: Xid (PCI:0000:c1:00): 79, GPU has fallen off the bus."}',
    "NVRM: GPU at PCI:0000:91:00: GPU-00000000-0000-0000-0000-000000000002",
    "NVRM: GPU Board Serial Number: 1650000000000",
    "NVRM: The NVIDIA GPU 0000:b3:00.0",
    "NVRM: The NVIDIA GPU 0000:b3:00.0\nNVRM: (PCI ID: 10de:26b5)\nNVRM: installed in this system is not supported",
    "NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  580.95.05",
    "a GPU has fallen off the bus, said the mail",
    "pt_main_thread[2536443]: segfault at 7f797fe00000 ip 00007f7c7ac69996 error 4 in libnccl.so.2",
    "nvidia 0000:41:00.0: enabling device (0140 -> 0142)",
    "",
]  # fmt: skip


@pytest.mark.parametrize("line", NONE, ids=[line[:50] for line in NONE])
def test_what_only_mentions_one_is_none(line: str) -> None:
    assert parse(line) is None


LOST = [
    ("[6781741.548783] NVRM: GPU 0000:91:00.0: GPU has fallen off the bus.", "0000:91:00"),
    ("NVRM: GPU at 0000:01:00.0 has fallen off the bus.", "0000:01:00"),
    ("NVRM: GPU at PCI:0000:01:00 has fallen off the bus.", "0000:01:00"),
    (LOST_IN_ONE, "0000:b3:00"),
    (LOST_IN_ONE.replace("\n", "#012"), "0000:b3:00"),
    (LOST_IN_ONE.replace("\n", "\\x0a"), "0000:b3:00"),
    ("NVRM: The NVIDIA GPU 0000:41:00.0 is lost", "0000:41:00"),
    ("               NVRM: fallen off the bus and is not responding to commands.", None),
    ("NVRM: GPU 0000:41:00.0: RmInitAdapter failed! (0x22:0x65:884)", "0000:41:00"),
    ("NVRM: GPU 0000:41:00.0: rm_init_adapter failed, device minor number 0", "0000:41:00"),
    ("NVRM: RmInitAdapter failed! (0x26:0xffff:1227)", None),
    ("NVRM: GPU is lost, skipping nvidia_ioctl", None),
    ("nvidia 0000:41:00.0: Unable to change power state from D3cold to D0, device inaccessible", "0000:41:00"),
]


@pytest.mark.parametrize(("line", "pci"), LOST, ids=[line[:60] for line, _ in LOST])
def test_a_gpu_that_is_gone_without_an_xid_is_lost(line: str, pci: str | None) -> None:
    found = told(line)
    assert (found.kind, found.code, found.pci) == ("lost", 0, pci)
    assert "\n" not in found.text and "NVRM" not in found.text


ACTIONS = [
    ("0x0 (None) to 0x1 (GPU Reset Required)", "reset"),
    ("0x0 (None) to 0x1 (PF FLR)", "reset"),
    ("0x0 (None) to 0x2 (Node Reboot Required)", "reboot"),
    ("0x0 (None) to 0x2 (OS Reboot)", "reboot"),
    ("0x0 (None) to 0x3 (Drain P2P)", "test"),
    ("0x0 (None) to 0x4 (Drain and Reset)", "reset"),
    ("0x2 (Node Reboot Required) to 0x0 (None)", "none"),
    ("0x0 (None) to 0x9 (Ask the Moon)", "test"),
    ("0x0 (None) to 0x2 (Node Reb", "reboot"),
    ("0x0 (None) to 0x4 (", "reset"),
    ("0x0 (None) to 0x4", None),
    ("0x0 (None) t", None),
]


@pytest.mark.parametrize(("change", "action"), ACTIONS, ids=[change for change, _ in ACTIONS])
def test_xid_154_says_what_has_to_happen(change: str, action: str | None) -> None:
    assert told(f"NVRM: Xid (PCI:0009:01:00): 154, GPU recovery action changed from {change}").action == action


def test_the_lines_beside_an_xid_name_the_gpu() -> None:
    assert named_gpu("[ 1843.308145] NVRM: The NVIDIA GPU 0000:B3:00.0") == "0000:b3:00"
    assert named_gpu("NVRM: The NVIDIA GPU 0000:b3:00.0 (PCI ID: 10de:26b5)") is None
    uuid = "GPU-01234567-89ab-cdef-0123-456789abcdef"
    assert gpu_uuid(f"NVRM: GPU at PCI:0000:91:00: {uuid}") == ("0000:91:00", uuid)
    assert gpu_uuid(f"NVRM: GPU at PCI:0000:91:00: {uuid[:-1]}") is None


@pytest.mark.parametrize("line", [*LINES, LOST_IN_ONE, *(line for line, _ in FORMS)], ids=lambda line: line[:40])
def test_a_cut_line_gives_less_and_never_something_else(line: str) -> None:
    """But for the cause of an Xid 45, which the driver writes last and which nothing depends on."""
    whole = asdict(told(line)) | {"caused_by": None}
    for length in range(len(line)):
        cut = parse(line[:length])
        open_ones = ("text", "caused_by")
        told_so_far = (
            {k: v for k, v in asdict(cut).items() if v not in (None, "", ()) and k not in open_ones} if cut else {}
        )
        assert told_so_far.items() <= whole.items(), line[:length]
        assert cut is None or whole["text"].startswith(cut.text)


@given(st.text(max_size=300))
def test_no_text_raises(text: str) -> None:
    parse(text), named_gpu(text), gpu_uuid(text)


PIECES = st.sampled_from(
    ["NVRM: ", "Xid", " (", "PCI:", "0000:c1:00", "): ", "79", "154", "149", ", ", "pid=", "name=", "'", "<unknown>", "\n", "#012",
     "nvidia-nvswitch1: SXid (", "GPU ", "fallen off the bus", "is lost", " changed from 0x0 (None) to 0x", "[1.2] ", "XID 95 x", "٧"]
)  # fmt: skip


@given(st.lists(PIECES, max_size=20).map("".join))
def test_no_mangled_line_raises_or_gives_a_code_that_stands_nowhere(line: str) -> None:
    found = parse(line)
    assert found is None or found.kind == "lost" or str(found.code) in line.replace("٧", "7")


def test_a_hostile_line_costs_little() -> None:
    """Read many times over: a square of its length would run into the test's deadline."""
    for piece in (
        "NVRM: ",
        "NVRM: Xid (PCI:",
        "NVRM: GPU  lost",
        "[1]XID ",
        "name=,",
        "nvidia 0000:01:00.0: inaccessible",
    ):
        for _ in range(100):
            assert parse(piece * 3_000) is None


@pytest.mark.skipif(not SHARED.is_file(), reason="no shared data beside this checkout")
def test_lines_of_real_machines() -> None:
    rows = [json.loads(line) for line in SHARED.read_text().splitlines()]
    names = {"type": "kind", "name": "process", "caused_by_xid": "caused_by"}
    for row in rows:
        found = parse(row["line"])
        if row["expect"] is None:
            assert found is None or found.kind == "lost", row["line"]
        else:
            expected = {names.get(key, key): value for key, value in row["expect"].items()}
            assert found and expected.items() <= asdict(found).items(), row["line"]
    assert len(rows) >= 100
