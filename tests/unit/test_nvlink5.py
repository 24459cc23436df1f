"""What NVLink 5's Xids ask for, by their registers: rows of NVIDIA's decode table and lines of real machines."""

import pytest

from bot.signals.nvlink5 import decoded
from bot.signals.xid_lines import parse

SOFTWARE = 1 << 31  # the status bit of an error that software defines


@pytest.mark.parametrize(
    ("unit", "status", "action"),
    [
        ("SAW_MVB", 0x2, "reset"),
        ("SAW_MVB", 0x8, "none"),
        ("RLW_REMAP", 0x20, "restart_app"),
        ("RLW_REMAP", 0x80, "reset"),
        ("RLW_REMAP", 0x200, "none"),
        ("RLW_SRC_TRACK", 0x8, "restart_app"),
        ("RLW_SRC_TRACK", 0x8 | 0x1, "reset"),  # two at once: the worse one
        ("RLW_SRC_TRACK", 0x8 | 0x2, "restart_app"),
        ("RLW_TAGSTATE", 0x100000, "reset"),
        ("TLW_RX/TLW_RX_PIPE0", 0x4, "reset"),
        ("TLW_TX_PIPE1", 0x2, "none"),
        ("TREX", SOFTWARE, "none"),
        ("NVLPW_CTRL/NVLPW", SOFTWARE, "none"),
        ("NETIR_BER_EVENT", 0x3, "none"),
        ("NETIR_MFDE_EVENT", 0x5, "reset"),
        ("NETIR_MFDE_EVENT", 0x3, "none"),
        ("NETIR_INT", 0x0, "reset"),
        ("MSE_WATCHDOG", 0x0, "reset"),
        ("RLW_REMAP", 0x0, None),
        ("RLW_REMAP", 0x400, None),
        ("RLW_REMAP", 0x400 | 0x1, None),  # what is new beside what is mild may be worse
        ("RLW_REMAP", 0x400 | 0x40, "reset"),
        ("NETIR_MFDE_EVENT", 0x2, None),
        ("SOMETHING_NEW", 0x1, None),
    ],
)
def test_unit_and_status_decide(unit: str, status: int, action: str | None) -> None:
    assert decoded(unit, False, (0, status)) == action


@pytest.mark.parametrize(("reason", "action"), [(0, "reset"), (0x25, "reset"), (38, "none"), (40, "none"), (11, None)])
@pytest.mark.parametrize("unit", ["NETIR_LINK_EVT", "NETIR_LINK_DOWN"])
def test_why_a_link_went_down_decides(unit: str, reason: int, action: str | None) -> None:
    assert decoded(unit, True, (reason << 20 | 0x1C6, 0)) == action


def test_an_error_that_was_promoted_wants_a_reset() -> None:
    assert [decoded("RLW_RXPIPE", fatal, (0, 0x2)) for fatal in (False, True)] == ["none", "reset"]


def test_without_registers_the_code_decides() -> None:
    assert decoded("RLW_REMAP", True, ()) is None and decoded("NETIR_LINK_EVT", True, (0x1C6,)) is None


@pytest.mark.parametrize(
    ("line", "action"),
    [
        ("145, pid=9, name=a, RLW_RXPIPE Nonfatal XC0 i0 Link 13 (0x0409a0c2 0x00000008 0x1 0x0 0x0 0x4)", "none"),
        (
            "145, pid=9, name=a, RLW_SRC_TRACK Nonfatal XC1 i0 Link 03 (0x040868e2 0x00000008 0x0 0x0 0x0)",
            "restart_app",
        ),
        ("149, NETIR Fatal XC0 i0 Link -1 (0x000fe406 0x00000000 0x00000000 0x00000000)", "reset"),
        ("149, NETIR_LINK_EVT  Fatal   XC0 i0 Link 08 (0x004505c6 0x00000000 0x00000000)", "reset"),
        ("149, NETIR_BER_EVENT Nonfatal XC0 i0 Link 03 (0x00086226 0x00000002 0x0 0x0)", "none"),
        ("145, RLW_REMAP Nonfatal XC0 i0 Link 02 (...)", None),
    ],
)
def test_lines_of_real_machines(line: str, action: str | None) -> None:
    told = parse(f"NVRM: Xid (PCI:0018:01:00): {line}")
    assert told and told.action == action
