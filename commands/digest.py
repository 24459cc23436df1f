"""The week's figures in the channel, because somebody asked for them."""

from __future__ import annotations

from bot.errors import UsageError
from bot.events import DigestPosted
from bot.weeks import last_week, week_of
from commands.run import Asked, Reply, usage


def post(asked: Asked) -> Reply:
    """A week that was posted already is edited where it stands: it never stands there twice."""
    if len(asked.words) > 1:
        raise usage("digest")
    services = asked.services
    tz: str = services.tz
    week = week_of(asked.words[0], tz) if asked.words else last_week(services.now, tz)
    if services.now < week.end:
        raise UsageError(f"week {week.name} is not over", f"look at it with `xidbot digest --week {week.name}`")
    known = services.state.find(DigestPosted, week.name)
    event = DigestPosted(services.now, week.name, late=known.late if known else False)
    done = "is brought up to date" if known else "will stand in the channel in a moment"
    return Reply(f"The digest of week {week.name} {done}.", [event])
