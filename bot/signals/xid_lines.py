"""What one line of a kernel log says about a GPU or an NVSwitch: an Xid, an SXid, or that a GPU is lost.

Pure. A line that was cut or mangled gives what is certain of it, or nothing; never another code. The driver always
writes a comma after a code, so a code without one is the beginning of a longer one.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from bot.policy import XidAction
from bot.signals.nvlink5 import decoded

Kind = Literal["xid", "sxid", "lost"]
LONGEST = 300  # characters of a message that are kept: the driver's are shorter
SEEN = 1200  # characters of a line that are looked at: the kernel's own limit for one record is 1,024 (printk)


@dataclass(frozen=True, slots=True)
class XidLine:
    """kind lost: the driver says that a GPU is gone or cannot be started, without a code (code 0).

    pci: `0000:c1:00` of a GPU, `0000:c1:00.0` of a switch, None where it is not told. fatal: of an SXid and of NVLink
    5's Xids. action: what the line itself says has to happen; None: the code decides. link, registers: of NVLink 5's
    Xids (144-150), registers only when all of them are there. via: who reports it, the driver or a board's controller.
    lead: what stands before the message and is no time stamp: somebody quotes the kernel.
    """

    kind: Kind
    code: int = 0
    pci: str | None = None
    text: str = ""
    pid: int | None = None
    process: str | None = None
    gpu_instance: str | None = None
    compute_instance: str | None = None
    caused_by: int | None = None
    fatal: bool | None = None
    link: int | None = None
    registers: tuple[int, ...] = ()
    action: XidAction | None = None
    via: Literal["driver", "bmc"] = "driver"
    lead: str = ""


# Not within a word, a path or quotes: there somebody writes about such a line (a grep in a shell's history, JSON).
_FREE = r"(?<![\w'\"`=/(\\])"
_XID = re.compile(_FREE + r"NVRM:\s+Xid\s*(?:\((?P<where>[^()\n]*)\))?:\s*(?P<code>\d{1,3}),(?P<rest>[^\n]*)")
_SXID = re.compile(
    _FREE + r"nvidia-nvswitch\d*:\s+SXid\s*\((?P<where>[^()\n]*)\):\s*(?P<code>\d{1,5}),(?P<rest>[^\n]*)"
)
_BMC = re.compile(r"^\s*(?:\[[^][\n]*\]\s*){2,}XID (?P<code>\d{1,3}) (?P<rest>[^\n]*\S)")
_HEX = "[0-9a-fA-F]"
_ADDRESS = rf"(?:{_HEX}{{4,8}}:)?{_HEX}{{2,4}}:{_HEX}{{2}}(?:\.[0-7])?"
_WHERE = re.compile(rf"\s*(?P<bus>PCI:)?(?P<pci>{_ADDRESS})?(?=$|[\s,.])(?P<more>.*)")
_FULL_ADDRESS = re.compile(rf"(?:(?<=PCI:)|(?<![\w:]))({_HEX}{{4,8}}:{_HEX}{{2}}:{_HEX}{{2}})(?:\.[0-7])?(?!\w)")
_GPU_INSTANCE = re.compile(r"\b(?:GPU-I|GI|GPU instance)[:=# ]*(\d+)", re.IGNORECASE)
_COMPUTE_INSTANCE = re.compile(r"\b(?:GPU-CI|CI|compute instance)[:=# ]*(\d+)", re.IGNORECASE)
_BOTH_INSTANCES = re.compile(r"\bGI/CI[:=# ]*(\d+)/(\d+)", re.IGNORECASE)
_PID = re.compile(r"\s*pid=(?P<pid>[^,\n]*),")
_NAME = re.compile(r"\s*name=(?P<name>[^\n]*?),(?=\s)")
_CUT = re.compile(r"\s*(?:pi?|pid(?:=[^,]*)?|na?|nam|name(?:=(?:(?!,\s).)*)?)$")
_CAUSE = re.compile(r"caused by previous Xid (\d{1,3})(?!\d)")
_RECOVERY = re.compile(r"recovery action changed from .*? to (0x[0-9a-fA-F]+) \((?:([^()]*)\))?")
_NVLINK5 = re.compile(
    r"\s*(?P<unit>[A-Z][\w/]*)\s+(?P<severity>Fatal|Nonfatal)\s+XC\d+\s+i\d+\s+Link\s+(?P<link>-?\d{1,4})(?=\s)"
)
_REGISTERS = re.compile(r"\s*\(((?:0x[0-9a-fA-F]+ ?)+)\)")
_SEVERITY = re.compile(r"\s*(?:(?P<fatal>Fatal\b|Severity 1\b)|Non-fatal\b|Severity 0\b)", re.IGNORECASE)
_STAMPS = re.compile(r"(?:\s|<\d{1,3}>|\[\s*\d+\.\d+\]|\[\s*[TC]\d+\]|\[\.\.\.\]|kernel:)*")

_DRIVER = re.compile(_FREE + r"NVRM:\s(?!\s*Xid)")
_GONE = re.compile(
    r"fallen off the bus|\bGPU\b[^\n]{0,60}\bis lost\b|\blost from the bus\b"
    r"|\b(?:RmInitAdapter|rm_init_adapter) failed|\bFailed to detect (?:the )?GPU\b"
)
_INACCESSIBLE = re.compile(_FREE + rf"nvidia {_ADDRESS}: [^\n]*\b(?:device|config space) inaccessible\b")
_NAMED = re.compile(_FREE + rf"NVRM:\s+The NVIDIA GPU ({_ADDRESS})\s*$")
_UUID = re.compile(_FREE + rf"NVRM:\s+GPU at (?:PCI:)?({_ADDRESS}): (GPU-[0-9a-fA-F-]{{36}})(?![\w-])")
_NEWLINES = re.compile(r"#012|\\x0a|\\n")  # how rsyslog, /dev/kmsg and careless writers put a line break into a line


def parse(line: str) -> XidLine | None:
    """None for every line that is neither of the three. Never raises."""
    line = line[:SEEN]
    if "NVRM" in line:
        line = _NEWLINES.sub("\n", line)
    for words, read in _READERS:
        if any(word in line for word in words) and (found := read(line)):
            return found
    return None


def named_gpu(line: str) -> str | None:
    """The driver tells of a lost GPU in three lines; this one names it, and alone it may begin another message."""
    found = _NAMED.search(line)
    return _gpu(found[1]) if found else None


def gpu_uuid(line: str) -> tuple[str, str] | None:
    """(pci, UUID) of the line that comes before a GPU's first Xid. It reports nothing by itself."""
    found = _UUID.search(line)
    return (_gpu(found[1]), found[2]) if found else None


# -- Xid ---------------------------------------------------------------------------------------------------------------


def _xid(line: str) -> XidLine | None:
    found = _XID.search(line)
    where = _WHERE.match(found["where"] or "") if found else None
    if not found or not where or not int(found["code"]):
        return None
    if found["where"] and not where["bus"] and not where["pci"]:
        return None  # in the place of the address stands something else
    code, (pid, process, text) = int(found["code"]), _process(found["rest"])
    cause, nvlink = _CAUSE.search(text), _NVLINK5.match(text) if 144 <= code <= 150 else None
    registers = _registers(text[nvlink.end() :]) if nvlink else ()
    return XidLine(
        kind="xid",
        code=code,
        pci=_gpu(where["pci"]) if where["pci"] else None,
        text=text,
        pid=pid,
        process=process,
        gpu_instance=_instance(where["more"], _GPU_INSTANCE, 1),
        compute_instance=_instance(where["more"], _COMPUTE_INSTANCE, 2),
        caused_by=int(cause[1]) if cause else None,
        fatal=nvlink["severity"] == "Fatal" if nvlink else None,
        link=int(nvlink["link"]) if nvlink else None,
        registers=registers,
        action=_recovery(text) if code == 154 else _decoded(nvlink, registers),
        lead=_lead(line, found.start()),
    )


def _process(rest: str) -> tuple[int | None, str | None, str]:
    """(pid, name, message). A pid or a name that no comma ends may be cut, and is not told."""
    pid, name = None, None
    if found := _PID.match(rest):
        pid, rest = found["pid"].strip("'\" "), rest[found.end() :]
    if found := _NAME.match(rest):
        name, rest = found["name"].strip(), rest[found.end() :]
    text = "" if _CUT.match(rest) else rest.strip()[:LONGEST]
    return int(pid) if pid and pid.isdecimal() and len(pid) < 12 else None, _told(name), text


def _told(name: str | None) -> str | None:
    if name and len(name) > 1 and name[0] == name[-1] and name[0] in "'\"":
        name = name[1:-1]
    return None if not name or name == "<unknown>" else name


def _instance(where: str, pattern: re.Pattern[str], group: int) -> str | None:
    if both := _BOTH_INSTANCES.search(where):
        return str(both[group])
    found = pattern.search(where)
    return found[1] if found else None


def _gpu(address: str) -> str:
    """As the driver writes it today: four digits of domain, lower case, no function."""
    address = address.lower().split(".")[0]
    domain, _, rest = address.partition(":")
    return f"{domain[4:]}:{rest}" if len(domain) == 8 and domain.startswith("0000") else address


def _recovery(text: str) -> XidAction | None:
    """What Xid 154 asks for. The words win, because drivers gave one number several names (0x1: GPU Reset Required, PF
    FLR); where they are cut off the number tells. An action new to us is neither ignored nor does it condemn."""
    found = _RECOVERY.search(text)
    if not found:
        return None
    words = (found[2] or "").lower()
    named: dict[str, XidAction] = {"reboot": "reboot", "p2p": "test", "reset": "reset", "flr": "reset", "none": "none"}
    numbers: dict[int, XidAction] = {0: "none", 1: "reset", 2: "reboot", 3: "test", 4: "reset"}
    by_words = next((action for word, action in named.items() if word in words), None)
    return by_words or ("test" if words else numbers.get(int(found[1], 16), "test"))


def _decoded(nvlink: re.Match[str] | None, registers: tuple[int, ...]) -> XidAction | None:
    return decoded(nvlink["unit"], nvlink["severity"] == "Fatal", registers) if nvlink else None


def _registers(text: str) -> tuple[int, ...]:
    found = _REGISTERS.match(text)
    return tuple(int(value, 16) for value in found[1].split()) if found else ()


# -- the others --------------------------------------------------------------------------------------------------------


def _sxid(line: str) -> XidLine | None:
    found = _SXID.search(line)
    where = _WHERE.match(found["where"]) if found else None
    if not found or not where or not (where["bus"] or where["pci"]) or not int(found["code"]):
        return None
    severity = _SEVERITY.match(found["rest"])
    return XidLine(
        kind="sxid",
        code=int(found["code"]),
        pci=where["pci"].lower() if where["pci"] else None,
        text=found["rest"].strip()[:LONGEST],
        fatal=severity["fatal"] is not None if severity else None,
        lead=_lead(line, found.start()),
    )


def _lost(line: str) -> XidLine | None:
    """The words first: looking for them behind each `NVRM:` would cost the square of a hostile line's length."""
    gone = _GONE.search(line)
    found = _DRIVER.search(line, 0, gone.start()) if gone else _INACCESSIBLE.search(line)
    if not found:
        return None
    address = _FULL_ADDRESS.search(line, found.start(), gone.end() if gone else found.end())
    text = " ".join(line[found.start() :].replace("NVRM:", " ").split())[:LONGEST]
    return XidLine("lost", pci=_gpu(address[1]) if address else None, text=text, lead=_lead(line, found.start()))


def _bmc(line: str) -> XidLine | None:
    """The controller of an HGX board has a form of its own, without an address."""
    found = _BMC.match(line)
    if not found or not int(found["code"]):
        return None
    return XidLine("xid", int(found["code"]), text=found["rest"].strip()[:LONGEST], via="bmc")


def _lead(line: str, start: int) -> str:
    before = line[:start]
    stamps = _STAMPS.match(before)
    return before[stamps.end() if stamps else 0 :].strip()


# What is in every such line: looked for first, because nearly no line has it, and hostile ones should cost little.
_READERS: tuple[tuple[tuple[str, ...], Callable[[str], XidLine | None]], ...] = (
    (("Xid",), _xid),
    (("SXid",), _sxid),
    (("off the bus", " lost", "dapter failed", "o detect", "inaccessible"), _lost),
    (("XID ",), _bmc),
)
