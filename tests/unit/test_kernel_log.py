"""Kernel logs as a source: real files that are written, rotated, cut and taken away."""

from __future__ import annotations

import json
import os
import random
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from threading import Event as Flag
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot import policy
from bot.errors import Unreachable
from bot.model import Mark
from bot.sources.kernel_log import KernelLog, follow, headers, kernel_log, seek
from bot.sources.kernel_log.hearing import Hearing
from bot.sources.kernel_log.records import Journal, Syslog
from bot.sources.kernel_log.source import Input
from store.cursors import Cursors
from store.database import Database

NOW = 1_796_100_000  # 2026-12-01 04:40:00 UTC
SEOUL = ZoneInfo("Asia/Seoul")
NODES = frozenset({"node-17", "node-18", "node-19"})
WINDOW = 900
OFF_BUS = "NVRM: Xid (PCI:0000:c1:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."
FAULT = "NVRM: Xid (PCI:0000:3b:00): 31, pid=812, name=python3, Ch 00000008, MMU Fault"
UUID = "GPU-01234567-89ab-cdef-0123-456789abcdef"


@dataclass
class Shelf:
    """Cursors in memory."""

    kept: dict[str, str] = field(default_factory=dict)

    def get(self, name: str) -> str | None:
        return self.kept.get(name)

    def put(self, name: str, value: str) -> None:
        self.kept[name] = value


def bsd(at: int, text: str, host: str = "node-17", zone: Any = UTC) -> str:
    return f"{datetime.fromtimestamp(at, zone):%b %e %H:%M:%S} {host} kernel: {text}\n"


def iso(at: int, text: str, host: str = "node-17") -> str:
    return f"{datetime.fromtimestamp(at, UTC).isoformat()} {host} kernel: [8.25] {text}\n"


def entry(at: int, text: object, host: str = "node-17", transport: str = "kernel", **more: object) -> str:
    fields = {
        "__REALTIME_TIMESTAMP": str(at * 1_000_000 + 7),
        "_HOSTNAME": host,
        "_TRANSPORT": transport,
        "MESSAGE": text,
    }
    return json.dumps(fields | more) + "\n"


def write(path: Path, text: str | bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab") as file:
        file.write(text.encode() if isinstance(text, str) else text)


def syslog(path: Path | str, shelf: Shelf | None = None, **more: Any) -> KernelLog:
    return kernel_log(shelf or Shelf(), UTC, syslog=[str(path)], **more)


def journal(path: Path | str, shelf: Shelf | None = None) -> KernelLog:
    return kernel_log(shelf or Shelf(), UTC, journal=[str(path)])


def look(log: KernelLog, now: int = NOW) -> Sequence[Mark]:
    return sorted(log.marks(now - WINDOW, now, NODES), key=lambda m: (m.at, m.signal))


def codes(log: KernelLog, now: int = NOW) -> list[float]:
    return [mark.value for mark in look(log, now)]


def xid(code: int, gpu: str = "0000:c1:00") -> str:
    return f"NVRM: Xid (PCI:{gpu}): {code}, pid=1, name=a, text"


# -- what becomes of a line --------------------------------------------------------------------------------------------


def test_the_kernels_word_names_code_gpu_and_what_has_to_happen(tmp_path: Path) -> None:
    write(tmp_path / "j.json", entry(NOW - 60, OFF_BUS))
    assert look(journal(tmp_path / "j.json")) == [
        Mark(NOW - 60, "node-17", "xid_reboot", 79.0, None, "Xid 79 (GPU has fallen off the bus) on GPU 0000:c1:00 (kernel log)")
    ]  # fmt: skip


def test_plain_syslog_only_claims(tmp_path: Path) -> None:
    write(tmp_path / "log", bsd(NOW - 60, OFF_BUS))
    (mark,) = look(syslog(tmp_path / "log"))
    assert (mark.signal, mark.value, mark.provenance) == ("xid_claimed", 79.0, "claimed")
    assert mark.text == "Xid 79 (GPU has fallen off the bus) on GPU 0000:c1:00 (syslog)"


CLASSES = [(79, "xid_reboot"), (119, "xid_reset"), (64, "xid_repair"), (145, "xid_test"), (63, "xid_reset_idle"), (31, "xid_restart_app"), (222, "xid_test")]  # fmt: skip


@pytest.mark.parametrize(("code", "signal"), CLASSES)
def test_a_code_goes_to_the_signal_of_its_class(tmp_path: Path, code: int, signal: str) -> None:
    write(tmp_path / "j", entry(NOW - 9, xid(code)))
    (mark,) = look(journal(tmp_path / "j"))
    assert (mark.signal, mark.value) == (signal, code)
    assert signal in policy.signals(None)


@pytest.mark.parametrize("code", [43, 45, 92, 121])
def test_a_code_that_asks_for_nothing_gives_no_mark(tmp_path: Path, code: int) -> None:
    write(tmp_path / "j", entry(NOW - 9, xid(code)))
    assert look(journal(tmp_path / "j")) == []


CLAIMS = [(79, "xid_claimed"), (119, "xid_claimed"), (64, "xid_claimed"), (63, "xid_claimed_soft"), (145, "xid_claimed_soft"), (31, "xid_restart_app"), (43, None)]  # fmt: skip


@pytest.mark.parametrize(("code", "signal"), CLAIMS)
def test_a_claim_never_says_more_than_the_kernel_would(tmp_path: Path, code: int, signal: str | None) -> None:
    write(tmp_path / "log", iso(NOW - 9, xid(code)))
    assert [m.signal for m in look(syslog(tmp_path / "log"))] == ([signal] if signal else [])


WANTED = [("0x0 (None) to 0x2 (Node Reboot Required)", "xid_reboot"), ("0x0 (None) to 0x4 (Drain and Reset)", "xid_reset"), ("0x0 (None) to 0x3 (Drain P2P)", "xid_test"), ("0x4 (Drain and Reset) to 0x0 (None)", None), ("0x0 (None) t", None)]  # fmt: skip


NETIR = "NVRM: Xid (PCI:0018:01:00): 149, NETIR_LINK_EVT Fatal XC0 i0 Link 09 ({info} 0x00000000 0x0 0x0)"
REMAP = "NVRM: Xid (PCI:0018:01:00): 145, pid=9, name=a, RLW_REMAP Nonfatal XC1 i0 Link 02 (0x00000082 {status} 0x0)"


@pytest.mark.parametrize(
    ("line", "signals"),
    [
        (NETIR.format(info="0x025525c6"), {("xid_reset", 149.0), ("xid_test", 0.0)}),
        (NETIR.format(info="0x028005c6"), {("xid_test", 0.0)}),  # the host took the link down
        (NETIR.format(info="0x00b005c6"), {("xid_test", 149.0)}),  # a reason that is not in the table
        (REMAP.format(status="0x00000002"), {("xid_restart_app", 145.0), ("xid_test", 0.0)}),
    ],
)
def test_the_registers_of_nvlink_5_outrank_what_the_gauge_makes_of_the_code(
    tmp_path: Path, line: str, signals: set[tuple[str, float]]
) -> None:
    write(tmp_path / "j", entry(NOW - 60, line))
    assert {(mark.signal, mark.value) for mark in look(journal(tmp_path / "j"))} == signals


@pytest.mark.parametrize(("change", "signal"), WANTED)
def test_xid_154_is_what_its_text_asks_for(tmp_path: Path, change: str, signal: str | None) -> None:
    write(tmp_path / "j", entry(NOW - 9, f"NVRM: Xid (PCI:0000:c1:00): 154, GPU recovery action changed from {change}"))
    found = look(journal(tmp_path / "j"))
    assert [m.signal for m in found] == ([signal] if signal else [])
    assert all(m.value == 154 and change.split("(")[-1][:-1] in m.text for m in found)


def test_a_fatal_error_of_a_switch_is_told_with_its_three_lines_as_one(tmp_path: Path) -> None:
    head = "nvidia-nvswitch1: SXid (PCI:0000:06:00.0): "
    for at, text in ((0, "20034, Data {0x1000}"), (1, "20034, Fatal, Link 48 LTSSM Fault Up"), (1, "28002, Non-fatal, Link 20 Therm Warn Deactivated")):  # fmt: skip
        write(tmp_path / "j", entry(NOW - 30 + at, head + text))
    (mark,) = look(journal(tmp_path / "j"))
    assert (mark.at, mark.until, mark.signal, mark.value) == (NOW - 30, NOW - 29, "nvswitch", 20034)
    assert "Fatal, Link 48" in mark.text and "0000:06:00.0" in mark.text


THREE = ("NVRM: The NVIDIA GPU 0000:b3:00.0", "NVRM: (PCI ID: 10de:26b5) installed in this system has", "NVRM: fallen off the bus and is not responding to commands.")  # fmt: skip


def test_a_gpu_lost_without_an_xid_is_told_with_its_address(tmp_path: Path) -> None:
    write(tmp_path / "apart", "".join(entry(NOW - 30, line) for line in THREE))
    write(tmp_path / "joined", entry(NOW - 30, "\n".join(THREE), host="node-18"))
    found = look(journal(tmp_path / "*"))
    assert [(m.node, m.signal, m.value) for m in found] == [
        ("node-17", "gpu_lost_log", 1),
        ("node-18", "gpu_lost_log", 1),
    ]
    assert all("on GPU 0000:b3:00" in mark.text for mark in found)


def test_a_lost_gpu_beside_its_xid_79_is_told_once(tmp_path: Path) -> None:
    write(
        tmp_path / "j",
        entry(NOW - 30, "NVRM: GPU 0000:c1:00.0: GPU has fallen off the bus.") + entry(NOW - 29, OFF_BUS),
    )
    write(tmp_path / "j", entry(NOW - 9, "NVRM: GPU 0000:c2:00.0: GPU has fallen off the bus."))
    assert [(m.signal, m.at) for m in look(journal(tmp_path / "j"))] == [
        ("xid_reboot", NOW - 29),
        ("gpu_lost_log", NOW - 9),
    ]


def test_the_same_gpu_and_code_within_five_seconds_is_one(tmp_path: Path) -> None:
    for after in (0, 3, 5, 11):
        write(tmp_path / "j", entry(NOW - 100 + after, xid(119)))
    write(tmp_path / "j", entry(NOW - 99, xid(119, "0000:c2:00")) + entry(NOW - 99, xid(120)))
    found = [(m.value, m.at - NOW, m.until and m.until - NOW) for m in look(journal(tmp_path / "j"))]
    assert found == [(119, -100, -95), (119, -99, None), (120, -99, None), (119, -89, None)]


def test_the_kernel_outranks_a_claim_of_the_same(tmp_path: Path) -> None:
    write(tmp_path / "log", bsd(NOW - 31, OFF_BUS, host="node-17.example.org"))
    write(tmp_path / "j", entry(NOW - 30, OFF_BUS))
    log = kernel_log(Shelf(), UTC, journal=[str(tmp_path / "j")], syslog=[str(tmp_path / "log")])
    assert [(m.signal, m.provenance) for m in look(log)] == [("xid_reboot", "kernel")]


def test_application_xids_keep_gpu_process_and_time(tmp_path: Path) -> None:
    write(
        tmp_path / "j",
        entry(NOW - 31, f"NVRM: GPU at PCI:0000:3b:00: {UUID}") + entry(NOW - 30, FAULT) + entry(NOW - 20, OFF_BUS),
    )
    log = journal(tmp_path / "j")
    look(log)
    (found,) = log.application(NOW - WINDOW, NOW, NODES)
    assert (found.node, found.code, found.pci, found.uuid, found.pid, found.process) == ("node-17", 31, "0000:3b:00", UUID, 812, "python3")  # fmt: skip
    assert (found.at, found.known, found.provenance) == (NOW - 30, True, "kernel")


# -- whose word, which host, when --------------------------------------------------------------------------------------

FORGED = [
    entry(NOW - 9, OFF_BUS, transport="syslog"),
    entry(NOW - 9, OFF_BUS, transport="stdout"),
    entry(NOW - 9, OFF_BUS, SYSLOG_FACILITY="1"),  # written to /dev/kmsg
    entry(NOW - 9, "usb 1-1: Product: " + OFF_BUS),
    entry(NOW - 9, OFF_BUS, transport="journal", TRANSPORT="kernel"),
    json.dumps({"TRANSPORT": "kernel", "HOSTNAME": "node-17", "MESSAGE": OFF_BUS, "REALTIME_TIMESTAMP": (NOW - 9) * 1_000_000}) + "\n",
]  # fmt: skip


@pytest.mark.parametrize("line", FORGED, ids=range(len(FORGED)))
def test_what_a_program_can_write_is_a_claim(tmp_path: Path, line: str) -> None:
    write(tmp_path / "j", line)
    assert [(m.signal, m.provenance, m.at) for m in look(journal(tmp_path / "j"))] == [
        ("xid_claimed", "claimed", NOW - 9)
    ]


SHIPPED = [
    entry(NOW - 9, list(OFF_BUS.encode() + b"\xff")),
    entry(NOW - 9, OFF_BUS, SYSLOG_FACILITY="0", _SOURCE_REALTIME_TIMESTAMP=str((NOW - 9) * 1_000_000)),
    json.dumps({"_TRANSPORT": "kernel", "host": "node-17", "message": OFF_BUS, "timestamp": "2026-12-01T04:39:51.5Z"}) + "\n",
    json.dumps({"_transport": "kernel", "_hostname": "node-17", "message": OFF_BUS, "date": NOW - 8.5}) + "\n",
    entry(NOW - 9, OFF_BUS, host="node-17.gpu.example.org"),
    "  " + entry(NOW - 9, OFF_BUS).strip() + " \r\n",
]  # fmt: skip


@pytest.mark.parametrize("line", SHIPPED, ids=range(len(SHIPPED)))
def test_journal_entries_are_read_as_shippers_write_them(tmp_path: Path, line: str) -> None:
    write(tmp_path / "j", line)
    assert [(m.signal, m.node, m.known, m.at) for m in look(journal(tmp_path / "j"))] == [
        ("xid_reboot", "node-17", True, NOW - 9)
    ]


RUBBISH = [
    b"\x00\x01\xfe\xff NVRM: Xid (PCI:\x00\n", b"{\"MESSAGE\": \"NVRM: Xid (PCI:0000\n", b'["NVRM: Xid"]\n', b'{"MESSAGE": null, "x": "NVRM:"}\n',
    b'{"MESSAGE": [78, 86, 82, 77, 999], "_HOSTNAME": 7}\n', b'{"MESSAGE": {"a": "NVRM: Xid"}}\n', b"[" * 100_000 + b"NVRM:\n", b'{"a": 1e999, "MESSAGE": "NVRM: x"}\n',
    b'{"__REALTIME_TIMESTAMP": "99999999999999999999999", "MESSAGE": "NVRM: Xid"}\n', b"\n\n\r\n",
]  # fmt: skip


@pytest.mark.parametrize("reader", [syslog, journal])
def test_rubbish_hides_nothing_that_is_around_it(tmp_path: Path, reader: Callable[[Path], KernelLog]) -> None:
    line = bsd if reader is syslog else entry
    for raw in RUBBISH:
        write(tmp_path / "log", line(NOW - 30, OFF_BUS))
        write(tmp_path / "log", raw)
    write(tmp_path / "log", b"\0" * 70_000 + b"\n")
    write(tmp_path / "log", line(NOW - 9, OFF_BUS))
    log = reader(tmp_path / "log")
    assert [m.at for m in look(log)] == [NOW - 30, NOW - 9] and log.problem == ""


@given(st.binary(max_size=200), st.sampled_from([Syslog(SEOUL), Journal(SEOUL)]))
def test_no_bytes_break_a_reader(raw: bytes, decode: Syslog | Journal) -> None:
    decode(raw, NOW)
    decode(b"Dec  1 04:39:51 " + raw, NOW)
    decode(b'{"MESSAGE": "' + raw + b'"}', NOW)


@given(st.text(alphabet="0123456789 :-+.,T[]<>ZDecaOktJST월년/{}|=", max_size=60))
def test_no_header_breaks_the_splitter(text: str) -> None:
    found = headers.split(text, NOW, SEOUL)
    assert found.rest == "" or text.endswith(found.rest)


AT = int(datetime(2026, 10, 6, 17, 59, 27, tzinfo=SEOUL).timestamp())
STAMPS = [
    ("Oct  6 17:59:27 node-17 kernel: hello", AT, "node-17"),
    ("Oct 06 17:59:27.123456 node-17 kernel: hello", AT, "node-17"),
    ("<4>Oct  6 17:59:27 node-17 kernel: [12.5] hello", AT, "node-17"),
    ("Oct  6 2026 17:59:27 node-17 kernel: hello", AT, "node-17"),
    ("2026 Oct  6 17:59:27 node-17 kernel: hello", AT, "node-17"),
    ("Tue Oct  6 17:59:27 2026 node-17 kernel: hello", AT, "node-17"),
    ("<6>1 - node-17 kernel - - - hello", None, "node-17"),
    ("Okt 06 17:59:27 node-17 kernel: hello", AT, "node-17"),
    ("10월 06 17:59:27 node-17 kernel: hello", AT, "node-17"),
    ("2026-10-06T17:59:27+09:00 node-17 kernel: hello", AT, "node-17"),
    ("2026-10-06T17:59:27.003+0900 node-17.a.b kernel: hello", AT, "node-17.a.b"),
    ("2026-10-06T08:59:27Z node-17 kernel: hello", AT, "node-17"),
    ("2026-10-06 17:59:27,003 node-17 kernel: hello", AT, "node-17"),
    ("Tue 2026-10-06 17:59:27 KST node-17 kernel: hello", AT, "node-17"),
    ("Tue 2026-10-06 08:59:27 UTC node-17 kernel: hello", AT, "node-17"),
    ("<6>1 2026-10-06T08:59:27.003Z node-17 kernel - - - hello", AT, "node-17"),
    ('<6>1 2026-10-06T08:59:27.003Z node-17 kernel - - [a@1 x="\\]"][b] hello', AT, "node-17"),
    ("[Tue Oct  6 17:59:27 2026] hello", AT, None),
    ("kern  :warn  : 2026-10-06T17:59:27,283302+09:00 hello", AT, None),
    (f"{AT}.123456 node-17 kernel: hello", AT, "node-17"),
    ("[12345.678901] node-17 kernel: hello", None, "node-17"),
    ("[12345.678901] hello", None, None),
    ("Oct 36 17:59:27 node-17 kernel: hello", None, "node-17"),
    ("Oct  6 17:59:27 kernel: hello", AT, None),
    ("hello", None, None),
]


@pytest.mark.parametrize(("line", "at", "host"), STAMPS, ids=[line for line, _, _ in STAMPS])
def test_times_and_hosts_are_found_in_every_header(line: str, at: int | None, host: str | None) -> None:
    found = headers.split(line, AT + 3600, SEOUL)
    assert (found.at, found.host, found.rest.removeprefix("[12.5] ")) == (at, host, "hello")


YEARS = [("2027-01-01T00:00:05", "Dec 31 23:59:58", "2026-12-31T23:59:58"), ("2026-12-31T23:59:58", "Jan  1 00:00:05", "2027-01-01T00:00:05"), ("2028-03-01T12:00:00", "Feb 29 10:00:00", "2028-02-29T10:00:00")]  # fmt: skip


@pytest.mark.parametrize(("now", "stamp", "meant"), YEARS)
def test_a_missing_year_is_the_nearest_one(now: str, stamp: str, meant: str) -> None:
    moment = int(datetime.fromisoformat(now).replace(tzinfo=SEOUL).timestamp())
    expected = int(datetime.fromisoformat(meant).replace(tzinfo=SEOUL).timestamp())
    assert headers.split(f"{stamp} node-17 kernel: x", moment, SEOUL).at == expected


def test_a_log_of_a_year_that_nobody_rotates_opens_nothing_old(tmp_path: Path) -> None:
    """Eleven months ago is nearer to the same day of this year, which has not come yet."""
    days = [NOW - 330 * 86_400, NOW - 200 * 86_400, NOW - 100 * 86_400]
    (tmp_path / "log").write_text("".join(bsd(at, OFF_BUS) for at in days) + bsd(NOW - 30, FAULT))
    log = kernel_log(Shelf(), UTC, syslog=(str(tmp_path / "log"),))
    assert [(mark.at, mark.value) for mark in log.marks(NOW - WINDOW, NOW, NODES)] == [(NOW - 30, 31.0)]


def test_a_clock_of_ours_that_was_set_back_makes_no_fresh_line_old(path: Path) -> None:
    source, shelf = Path(path), Shelf()
    source.write_text(bsd(NOW + 9000, "hello"))
    reader = kernel_log(shelf, UTC, syslog=(str(path),))
    reader.marks(NOW + 9000 - WINDOW, NOW + 9000, NODES)
    with source.open("a") as more:
        more.write(bsd(NOW, OFF_BUS))
    assert len(reader.marks(NOW - WINDOW, NOW, NODES)) == 1 and reader.problem == ""


def test_in_the_hour_that_comes_twice_the_nearer_one_is_meant() -> None:
    berlin = ZoneInfo("Europe/Berlin")
    for fold in (0, 1):
        moment = int(datetime(2026, 10, 25, 2, 30, tzinfo=berlin, fold=fold).timestamp())
        assert headers.split("Oct 25 02:30:00 n kernel: x", moment + 60, berlin).at == moment


def test_a_clock_that_runs_ahead_is_cut_at_now(tmp_path: Path) -> None:
    write(tmp_path / "log", bsd(NOW + 3600, OFF_BUS))
    log = syslog(tmp_path / "log")
    assert [m.at for m in look(log)] == [NOW]
    assert [m.at for m in look(log, NOW + 60)] == [NOW]


def test_local_times_are_the_sites(tmp_path: Path) -> None:
    write(tmp_path / "log", bsd(NOW - 30, OFF_BUS, zone=SEOUL))
    assert [m.at for m in look(kernel_log(Shelf(), SEOUL, syslog=[str(tmp_path / "log")]))] == [NOW - 30]


def test_a_wrong_time_zone_is_told_and_not_taken_for_old_lines(tmp_path: Path) -> None:
    for zone, says in ((ZoneInfo("America/New_York"), "5.0 h old"), (SEOUL, "9.0 h ahead")):
        path = tmp_path / f"{zone}".replace("/", "-")
        write(path, bsd(NOW - 60, "boot", zone=zone))
        log = syslog(path)
        look(log)
        assert log.problem == ""
        write(path, bsd(NOW + 5, OFF_BUS, zone=zone))
        look(log, NOW + 15)
        assert f"lines just written are {says}" in log.problem and "logs.kernel_log.timezone" in log.problem


def test_a_host_that_leads_to_no_node_is_shown_as_a_stranger(tmp_path: Path) -> None:
    for host in ("login-1.example.org", "10.0.0.17", "node-1"):
        write(tmp_path / "log", bsd(NOW - 30, OFF_BUS, host=host))
    write(tmp_path / "log", bsd(NOW - 30, OFF_BUS, host="node-17.example.org"))
    assert {(m.node, m.known) for m in look(syslog(tmp_path / "log"))} == {
        ("login-1.example.org", False), ("10.0.0.17", False), ("node-1", False), ("node-17", True),
    }  # fmt: skip


def test_without_a_host_the_files_name_tells_it_or_it_is_a_problem(tmp_path: Path) -> None:
    stamp = f"[{datetime.fromtimestamp(NOW - 9, UTC):%a %b %e %H:%M:%S %Y}] "
    write(tmp_path / "node-17" / "dmesg.log", stamp + OFF_BUS + "\n")
    write(tmp_path / "all" / "node-18.log", stamp + OFF_BUS + "\n")
    write(tmp_path / "all" / "dmesg.log", stamp + OFF_BUS + "\n")
    log = syslog(tmp_path / "*" / "*.log")
    assert {m.node for m in look(log)} == {"node-17", "node-18"}
    assert f"{tmp_path}/all/dmesg.log: its lines name no host" in log.problem
    early = syslog(tmp_path / "*" / "*.log")
    assert early.marks(NOW - WINDOW, NOW, ()) == [] and early.problem == ""  # the scheduler has not told its nodes yet
    assert {m.node for m in look(early)} == {"node-17", "node-18"}


def test_an_old_line_that_a_program_quotes_is_as_old_as_it_says(tmp_path: Path) -> None:
    old = f"[{datetime.fromtimestamp(NOW - 86_400, UTC):%a %b %e %H:%M:%S %Y}] {OFF_BUS}"
    write(
        tmp_path / "log", f"{datetime.fromtimestamp(NOW - 9, UTC):%b %e %H:%M:%S} node-17 epilog[7]: dmesg said {old}\n"
    )
    assert look(syslog(tmp_path / "log")) == []


# -- files -------------------------------------------------------------------------------------------------------------


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A log that has been read once."""
    path = tmp_path / "kern.log"
    write(path, bsd(NOW - 300, "systemd: something long enough to tell this file from another one"))
    return path


def test_the_first_look_begins_with_the_window(path: Path) -> None:
    for age, code in ((7200, 119), (600, 120), (60, 95)):
        write(path, bsd(NOW - age, xid(code)))
    assert codes(syslog(path)) == [120, 95]


def test_asked_again_it_tells_the_same_until_it_is_old(path: Path) -> None:
    write(path, bsd(NOW - 60, xid(119)))
    log = syslog(path)
    assert look(log) == look(log) != []
    assert codes(log, NOW + 800) == [119] and codes(log, NOW + 900) == []


def test_a_line_counts_when_it_is_complete(path: Path) -> None:
    log = syslog(path)
    line = bsd(NOW + 5, xid(119))
    write(path, line[:60])
    assert codes(log, NOW + 10) == []
    write(path, line[60:-1])
    assert codes(log, NOW + 20) == []
    write(path, "\n")
    assert [m.at for m in look(log, NOW + 30)] == [NOW + 5]


def test_a_restart_opens_nothing_old_and_loses_nothing(path: Path) -> None:
    shelf = Shelf()
    write(path, bsd(NOW - 60, xid(119)) + bsd(NOW + 3600, xid(48)))
    before = look(syslog(path, shelf))
    assert [m.value for m in before] == [119, 48]
    write(path, bsd(NOW + 30, xid(95)))
    again = syslog(path, shelf)
    assert look(again, NOW + 60) == [*before, *(m for m in look(again, NOW + 60) if m.value == 95)]
    assert codes(syslog(path, shelf), NOW + 8000) == []


def test_a_cursor_that_cannot_be_understood_is_a_first_start(path: Path) -> None:
    write(path, bsd(NOW - 60, xid(119)))
    for kept in (
        "",
        "{",
        "[]",
        '{"inputs": {"syslog": {"looked": 1, "places": [[1]]}}, "events": []}',
        '{"inputs": {}, "events": [{"a": 1}]}',
    ):
        assert codes(syslog(path, Shelf({"kernel log": kept}))) == [119]


def test_rotation_by_renaming_loses_nothing(path: Path) -> None:
    log = syslog(path)
    look(log)
    write(path, bsd(NOW + 1, xid(119)))
    path.rename(path.with_name("kern.log.1"))
    write(path, bsd(NOW + 2, xid(120)))
    assert codes(log, NOW + 10) == [119, 120]
    write(path.with_name("kern.log.1"), bsd(NOW + 11, xid(95)))  # the writer has not noticed yet
    write(path, bsd(NOW + 12, xid(48)))
    assert codes(log, NOW + 20) == [119, 120, 95, 48]


def test_rotation_while_the_bot_was_down_loses_nothing(path: Path) -> None:
    shelf = Shelf()
    look(syslog(path, shelf))
    write(path, bsd(NOW + 1, xid(119)))
    path.rename(path.with_name("kern.log.1"))
    write(path, bsd(NOW + 2, xid(120)))
    assert codes(syslog(path, shelf), NOW + 10) == [119, 120]


@pytest.mark.parametrize("glob", ["kern.log", "kern.log*"])
def test_rotation_by_copying_and_cutting_loses_nothing(path: Path, glob: str) -> None:
    log = syslog(path.with_name(glob))
    look(log)
    write(path, bsd(NOW + 1, xid(119)))
    path.with_name("kern.log.1").write_bytes(path.read_bytes())
    os.truncate(path, 0)
    write(path, bsd(NOW + 2, xid(120)))
    assert codes(log, NOW + 10) == [119, 120]


def test_a_cut_file_that_has_outgrown_its_old_length_is_read_from_its_beginning(path: Path) -> None:
    log = syslog(path)
    look(log)
    path.write_text(bsd(NOW + 1, xid(119)) + "".join(bsd(NOW + 2, f"usb 1-{i}: new device") for i in range(50)))
    assert codes(log, NOW + 10) == [119]


def test_a_compressed_or_foreign_file_in_the_old_ones_place_is_left_alone(path: Path) -> None:
    log = syslog(path)
    look(log)
    path.with_name("kern.log.2.gz").write_bytes(b"\x1f\x8b NVRM: Xid\n")
    path.rename(path.with_name("secret"))
    path.with_name("secret").write_text(bsd(NOW + 1, xid(119)) * 20)
    write(path, bsd(NOW + 2, xid(120)))
    assert codes(log, NOW + 10) == [120]


def test_a_file_that_a_longer_copy_replaces_is_read_on(tmp_path: Path) -> None:
    path = tmp_path / "node-17.log"
    log = syslog(path)
    write(path, f"[8.125] {xid(95)}\n[8.125] usb 1-1: something long enough to tell this file from another one\n")
    look(log)
    path.with_name("new").write_text(path.read_text() + f"[9.125] {xid(119)}\n")
    path.with_name("new").rename(path)
    assert codes(log, NOW + 15) == [119]


def test_what_is_no_text_is_left_alone_and_a_binary_journal_is_named(path: Path) -> None:
    write(path, bsd(NOW - 60, xid(119)))
    path.with_name("packed.log").write_bytes(b"\x1f\x8b\x08\x00" + bsd(NOW - 60, xid(95)).encode())
    path.with_name("system.log").write_bytes(b"LPKSHHRH" + b"\0" * 200 + entry(NOW - 60, OFF_BUS).encode())
    log = syslog(path.with_name("*.log"))
    assert codes(log) == [119]
    assert "system.log: is a binary journal" in log.problem and "packed.log" not in log.problem


@dataclass
class Writer:
    """A syslog daemon and its logrotate, driven by a seed. told: GPU → when its Xid was written, complete."""

    path: Path
    dice: random.Random
    told: dict[str, int] = field(default_factory=dict)
    half: str = ""
    turn: int = 0

    def write(self, at: int) -> None:
        gpu = f"0000:{len(self.told):02x}:00"
        line = bsd(at, f"usb 1-{at}: new device") + bsd(at, xid(119, gpu))
        cut = self.dice.randrange(len(line)) if self.dice.random() < 0.3 else len(line)
        write(self.path, self.half + line[:cut])
        self.half = line[cut:]
        self.told[gpu] = at

    def rotate(self, at: int) -> None:
        write(self.path, self.half)
        self.half, self.turn = "", self.turn + 1
        old = self.path.with_name(f"kern.log.{self.turn}")
        if self.dice.random() < 0.5:
            self.path.rename(old)
        else:
            old.write_bytes(self.path.read_bytes())
            os.truncate(self.path, 0)
        write(self.path, bsd(at, f"rotated {self.turn}"))

    def compress(self, at: int) -> None:
        """Long after, as logrotate's delaycompress does."""
        old = self.path.with_name(f"kern.log.{self.turn - 1}")
        if old.exists():
            old.with_name(old.name + ".gz").write_bytes(b"\x1f\x8b" + old.read_bytes())
            old.unlink()


@pytest.mark.parametrize("seed", range(10))
def test_whatever_becomes_of_the_files_each_event_is_told_once(path: Path, seed: int) -> None:
    dice = random.Random(seed)
    writer, shelf = Writer(path, dice), Shelf()
    log, pattern = syslog(path, shelf), path.with_name(dice.choice(["kern.log", "kern.log*"]))
    look(log)
    for now in range(NOW + 15, NOW + 465, 15):
        acts = [writer.write] * dice.randrange(3) + [dice.choice([writer.write, writer.rotate, writer.compress])]
        for act in dice.sample(acts, len(acts)):
            act(now - 5)
        if dice.random() < 0.2:
            log = syslog(pattern, shelf)
        found = look(log, now)
    write(path, writer.half)
    found = look(log, now)
    assert sorted((m.text.split("GPU ")[1][:10], m.at) for m in found) == sorted(
        (gpu[:10], at) for gpu, at in writer.told.items()
    )


def test_a_new_hosts_file_is_read_from_where_the_window_begins(path: Path) -> None:
    log = syslog(path.with_name("*.log"))
    look(log)
    write(path.with_name("new.log"), bsd(NOW - 9000, xid(95)) + bsd(NOW - 60, xid(119)))
    assert codes(log, NOW + 10) == [119]


def test_lines_without_a_time_are_of_now_where_they_are_new_for_certain(tmp_path: Path) -> None:
    path = tmp_path / "node-17.log"
    write(path, f"[8.125] {xid(95)}\n")
    log = syslog(path)
    assert look(log) == []  # nobody knows when that was
    write(path, f"[9.125] {xid(119)}\n")
    assert [(m.value, m.at) for m in look(log, NOW + 15)] == [(119, NOW + 15)]
    path.rename(path.with_name("node-17.log.1"))
    write(path, f"[11.125] {xid(120)}\n")
    write(path.with_name("node-18.log"), f"[7.125] {xid(48)}\n")
    assert codes(log, NOW + 30) == [119, 120]


def test_one_unreadable_file_hides_no_other_and_is_named(tmp_path: Path, path: Path) -> None:
    write(path, bsd(NOW - 60, xid(119)))
    os.mkfifo(tmp_path / "pipe.log")
    (tmp_path / "loop.log").symlink_to("loop.log")
    (tmp_path / "dir.log").mkdir()
    log = kernel_log(
        Shelf(), UTC, syslog=[str(tmp_path / "*.log"), str(tmp_path / "none")], journal=[str(tmp_path / "j")]
    )
    assert codes(log) == [119]
    assert "pipe.log: is no regular file" in log.problem and f"{tmp_path}/j: no such file" in log.problem
    assert "and 1 more" in log.problem


def test_when_nothing_can_be_read_it_says_what_and_where(tmp_path: Path, path: Path) -> None:
    with pytest.raises(Unreachable, match=r"kernel log: .*/none: no such file.*logs\.kernel_log"):
        look(syslog(tmp_path / "none"))
    write(path, bsd(NOW - 60, xid(119)))
    log = syslog(path)
    look(log)
    path.unlink()
    assert codes(log, NOW + 15) == [119] and "no such file" in log.problem  # what was seen stays seen
    with pytest.raises(Unreachable):
        look(log, NOW + 5000)


def test_a_read_is_bounded_and_the_rest_waits(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follow, "AT_ONCE", 2000)
    log = syslog(path)
    look(log)
    for i in range(60):
        write(path, bsd(NOW + i, xid(119, f"0000:{i:02x}:00")))
    seen = [len(look(log, NOW + 60 + i)) for i in range(6)]
    assert seen == sorted(seen) and 0 < seen[0] < 30 and seen[-1] == 60


def test_a_noisy_file_starves_no_other(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follow, "AT_ONCE", 2000)
    monkeypatch.setattr(follow, "IN_ALL", 2000)
    log = syslog(path.with_name("*.log"))
    write(path.with_name("zz.log"), bsd(NOW - 300, "quiet", host="node-18"))
    look(log)
    write(path.with_name("zz.log"), bsd(NOW + 1, xid(95), host="node-18"))
    for i in range(3):
        write(path, bsd(NOW + 1, f"noise {i}") * 100)
        found = look(log, NOW + 10 + i)
    assert [m.value for m in found] == [95]


def test_far_behind_it_goes_on_where_the_window_begins(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follow, "AT_ONCE", 300_000)
    shelf = Shelf()
    look(syslog(path, shelf))
    later = NOW + 86_400
    write(path, "".join(bsd(NOW + i, f"usb 1-1: new device number {i}") for i in range(0, 86_000, 5)))
    write(path, bsd(later - 300, xid(119)) + bsd(later - 20, "end"))
    log = syslog(path, shelf)
    looks = [codes(log, later + i) for i in range(3)]
    assert looks[-1] == [119]


def test_a_line_that_never_ends_is_given_up_and_the_next_one_is_read(path: Path) -> None:
    log = syslog(path)
    look(log)
    write(path, b"x" * (1 << 20))
    assert codes(log, NOW + 10) == []
    write(path, b"NVRM: Xid (PCI:0000:c1:00): 79, \n" + bsd(NOW + 11, xid(119)).encode())
    assert codes(log, NOW + 20) == [119]


def test_a_flood_of_one_host_pushes_out_no_other_and_is_bounded(path: Path) -> None:
    write(path, bsd(NOW - 60, xid(119), host="node-18"))
    write(path, "".join(bsd(NOW - 50, xid(95, f"{i:04x}:01:00")) for i in range(3000)))
    found = look(syslog(path))
    assert {m.value for m in found} == {119, 95} and len(found) < 600


@given(st.integers(0, 40_000), st.integers(1, 900))
def test_the_beginning_of_the_window_is_found_and_nothing_of_it_is_skipped(since: int, length: int) -> None:
    lines = [b"%08d %s\n" % (i, b"x" * (length if i % 7 else 3)) for i in range(0, 40_000, 50)]
    log = b"".join(lines)
    time_of: Callable[[bytes], int | None] = lambda line: int(line[:8]) if line[:8].isdigit() else None  # noqa: E731
    start = seek.window_start(lambda at, size: log[at : at + size], len(log), since, time_of)
    assert start is not None and (start == 0 or log[start - 1 : start] == b"\n")
    skipped = [int(line[:8]) for line in log[:start].splitlines()]
    assert all(at < since for at in skipped)
    wanted = log.find(b"%08d " % min(max(0, since - seek.SLACK) // 50 * 50, 39_950))
    assert start >= wanted - 2 * seek.PROBE


# -- a command, a store, a disk that hangs -----------------------------------------------------------------------------


def command(script: str, timeout: float = 20.0) -> KernelLog:
    return kernel_log(Shelf(), UTC, command=[sys.executable, "-c", script, "$since"], timeout=timeout)


def test_a_command_is_asked_for_the_window(tmp_path: Path) -> None:
    line = entry(NOW - 60, OFF_BUS).strip()
    log = command(f"import sys; assert sys.argv[1] == '{NOW - WINDOW}'; print({line!r})")
    assert codes(log) == [79] and codes(log) == [79] and log.problem == ""


def test_a_command_that_finds_nothing_is_fine_and_one_that_fails_says_why() -> None:
    assert codes(command("raise SystemExit(1)")) == []  # journalctl --grep without a match
    with pytest.raises(Unreachable, match="ended with 1: No journal files were found"):
        look(command("import sys; sys.exit('No journal files were found.')"))
    with pytest.raises(Unreachable, match="cannot be started: No such file"):
        look(kernel_log(Shelf(), UTC, command=["/no/such/journalctl"]))


def test_a_command_that_does_not_end_is_stopped_and_what_it_wrote_counts() -> None:
    line = entry(NOW - 60, OFF_BUS).strip()
    began = time.monotonic()
    log = command(f"import time; print({line!r}, flush=True); time.sleep(600)", timeout=2.0)
    assert codes(log) == [79] and "had not ended within 2 s" in log.problem
    assert time.monotonic() - began < 60


def test_the_cursor_lives_in_the_database(tmp_path: Path, path: Path) -> None:
    database = Database(tmp_path / "x.db")
    write(path, bsd(NOW - 60, xid(119)))
    assert codes(kernel_log(Cursors(database), UTC, syslog=[str(path)])) == [119]
    path.write_text(bsd(NOW - 60, "gone"))
    assert codes(kernel_log(Cursors(database), UTC, syslog=[str(path)])) == [119]
    database.close()


def test_a_quiet_log_costs_no_write(path: Path) -> None:
    shelf = Shelf()
    log = syslog(path, shelf)
    look(log)
    shelf.kept.clear()
    look(log, NOW + 15)
    assert shelf.kept == {}


@dataclass
class Hanging:
    """A stream whose storage answers when the flag is raised."""

    flag: Flag
    problems: dict[str, str] = field(default_factory=dict)
    readable: bool = True

    def read(self, since: int, now: int) -> Any:
        self.flag.wait(60)
        yield follow.Part("x", entry(NOW - 9, OFF_BUS).encode(), True)

    def dump(self) -> dict[str, Any]:
        return {}

    def load(self, kept: object) -> None: ...


def test_a_storage_that_hangs_does_not_hold_the_tick_and_is_heard_when_it_answers() -> None:
    flag = Flag()
    log = KernelLog([Input("x", Hanging(flag), Journal(UTC))], Shelf(), Hearing(UTC, r"^([^.]+)"), deadline=0.05)
    for _ in range(2):
        with pytest.raises(Unreachable, match="was not read within 0.05 s"):
            look(log)
    flag.set()
    log.deadline = 30
    assert codes(log) == [79]


def test_what_it_can_tell_depends_on_its_inputs(tmp_path: Path) -> None:
    assert set(syslog(tmp_path).signals) == {"xid_claimed", "xid_claimed_soft", "xid_restart_app"}
    assert {"gpu_lost_log", "nvswitch", "xid_reboot", "xid_claimed"} <= set(journal(tmp_path).signals)
