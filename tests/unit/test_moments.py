"""Times as others write them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from bot.moments import AHEAD, moment, offset, rfc3339

NOW = int(datetime(2026, 12, 1, 12, tzinfo=UTC).timestamp())
DAY = 86_400


def test_a_time_with_its_zone() -> None:
    assert rfc3339("2026-12-01T12:00:00Z") == rfc3339("2026-12-01t21:00:00+09:00") == NOW
    assert rfc3339("2026-12-01T12:00:00.250000001Z") == NOW + 0.25
    for text, says in (("noon", "'noon' is no time; write"), ("2026-12-01T12:00:00", "names no time zone")):
        with pytest.raises(ValueError, match=says):
            rfc3339(text)


@pytest.mark.parametrize(("text", "hours"), [("Z", 0), ("GMT", 0), ("+09:00", 9), ("-0330", -3.5), ("KST", None), ("+9900", None), ("", None)])  # fmt: skip
def test_offsets(text: str, hours: float | None) -> None:
    zone = offset(text)
    told = zone.utcoffset(datetime(2026, 1, 1)) if zone else None
    assert told == (None if hours is None else timedelta(hours=hours))


@pytest.mark.parametrize(
    ("month", "day", "year"),
    [(11, 30, 2026), (12, 1, 2026), (12, 2, 2026), (12, 3, 2026), (12, 5, 2025), (1, 1, 2026), (5, 1, 2026)],
)
def test_a_day_without_a_year_is_the_last_one_that_was_or_of_a_clock_ahead(month: int, day: int, year: int) -> None:
    assert moment(None, month, day, (12, 0, 0), NOW, UTC) == int(datetime(year, month, day, 12, tzinfo=UTC).timestamp())


def test_a_told_year_is_believed_and_a_day_that_never_was_is_none() -> None:
    assert (moment(2031, 1, 1, (0, 0, 0), NOW, UTC) or 0) > NOW + AHEAD
    assert moment(None, 2, 29, (0, 0, 0), NOW, UTC) is None
    assert moment(None, 13, 1, (0, 0, 0), NOW, UTC) is None


def test_the_hour_that_comes_twice_is_the_nearer_one() -> None:
    berlin = ZoneInfo("Europe/Berlin")
    for fold in (0, 1):
        at = int(datetime(2026, 10, 25, 2, 30, tzinfo=berlin, fold=fold).timestamp())
        assert moment(2026, 10, 25, (2, 30, 0), at + 60, berlin) == at
