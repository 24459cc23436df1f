"""Values in all the shapes that Slurm's JSON gives them."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from datetime import UTC, datetime

from bot.errors import BadReply

Record = Mapping[str, object]
SOURCE = "slurm"


def json_jobs(text: str, source: str) -> list[Record]:
    try:
        reply = json.loads(text, strict=False)
    except (ValueError, RecursionError) as error:
        raise BadReply(source, f"not JSON: {short(text)}") from error
    jobs = reply.get("jobs") if isinstance(reply, dict) else None
    errors = [e for e in as_list(as_map(reply).get("errors")) if not _nothing_found(e)]
    if errors:
        raise BadReply(source, "; ".join(short(_error_text(e)) for e in errors))
    if not isinstance(jobs, list):
        raise BadReply(source, f"no jobs in the reply: {short(text)}")
    return [as_map(job) for job in jobs]


def _nothing_found(error: object) -> bool:
    return as_map(error).get("error_number") == 9003 or "Nothing found" in _error_text(error)


def _error_text(error: object) -> str:
    fields = as_map(error)
    return as_text(fields.get("description")) or as_text(fields.get("error")) or str(error)


def record_name(record: Record, number: int) -> str:
    job = as_int(record.get("job_id"))
    return str(job) if job else f"no. {number + 1}"


def as_map(value: object) -> Record:
    return value if isinstance(value, dict) else {}


def as_list(value: object) -> list[object]:
    return value if isinstance(value, list) else []


def as_text(value: object) -> str:
    """A string as it is; 22.05 writes some empty ones as null or 0."""
    if isinstance(value, str):
        return value
    return str(value) if isinstance(value, int) and not isinstance(value, bool) and value else ""


def as_int(value: object) -> int | None:
    """A plain number or {set, infinite, number}. None = not set, infinite or Slurm's own "no value"."""
    if isinstance(value, dict):
        wanted = value.get("set", True) and not value.get("infinite", False)
        return as_int(value.get("number")) if wanted and not isinstance(value.get("number"), dict) else None
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        return None
    number = int(value)
    return None if number in (2**32 - 1, 2**32 - 2, 2**64 - 1, 2**64 - 2) else number


def true(value: object) -> bool:
    return value is True or bool(as_int(value))


def as_time(value: object) -> int | None:
    """Unix seconds; Slurm writes 0 for never."""
    seconds = as_int(value)
    return seconds if seconds and seconds > 0 else None


def text_time(text: str) -> int | None:
    if re.fullmatch(r"[0-9]{1,11}", text):
        return int(text) or None
    try:
        return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp())
    except ValueError:
        return None


def limit(value: object) -> int | None:
    minutes = as_int(value)
    return minutes * 60 if minutes is not None else None


def exit_text(value: object) -> str:
    """`3:0` as sacct prints it: code and signal. A plain number is the wait status."""
    fields = as_map(value)
    if fields:
        signal = as_map(fields.get("signal"))
        number = as_int(signal.get("id")) or as_int(signal.get("signal_id")) or 0
        return f"{as_int(fields.get('return_code')) or 0}:{number}"
    status = as_int(value)
    return "" if status is None else f"{(status >> 8) & 255}:{status & 127}"


def words(text: str) -> list[str]:
    return [word for word in text.split(",") if word and word != "(null)"]


def short(text: str) -> str:
    line = " ".join(text.split())
    return repr(line if len(line) <= 80 else line[:77] + "...")
