"""`scontrol show reservation`."""

from __future__ import annotations

import re

from bot.errors import BadReply
from bot.model import Reservation
from bot.slurm_records.hostlist import parse_hostlist
from bot.slurm_records.nodes import KEY
from bot.slurm_records.values import SOURCE, short, text_time


def parse_reservations(text: str) -> tuple[tuple[Reservation, ...], tuple[str, ...]]:
    """`scontrol show reservation`. Raises BadReply unless it shows some or says that there are none."""
    if text.strip().startswith("No reservations in the system"):
        return (), ()
    records = [r for r in re.split(r"(?m)^(?=ReservationName=)", text) if r.strip()]
    if not records or not all(r.startswith("ReservationName=") for r in records):
        raise BadReply(SOURCE, f"no reservation in the reply: {short(text)}")
    found: list[Reservation] = []
    unknown: list[str] = []
    for record in records:
        try:
            found.append(_reservation(record))
        except BadReply:
            unknown.append(f"reservation {short(record.removeprefix('ReservationName='))}")
    return tuple(found), tuple(unknown)


def _reservation(record: str) -> Reservation:
    fields: dict[str, str] = {}
    for key, value in KEY.findall(record):
        fields.setdefault(key, value)
    start, end = text_time(fields.get("StartTime", "")), text_time(fields.get("EndTime", ""))
    if not fields["ReservationName"] or start is None or end is None:
        raise BadReply(SOURCE, "a reservation without name or times")
    nodes = frozenset(parse_hostlist(fields.get("Nodes", "")))
    return Reservation(fields["ReservationName"], nodes, start, end, "MAINT" in fields.get("Flags", "").split(","))
