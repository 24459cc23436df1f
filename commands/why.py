"""Which stage is missing for a run, a node or an incident."""

from __future__ import annotations

from bot.why import explain, told
from commands.run import Asked, Reply, usage


def why(asked: Asked) -> Reply:
    if len(asked.words) != 1:
        raise usage("why")
    services = asked.services
    tz: str = services.tz
    stages = explain(asked.words[0], services.state, services.policy, services.now, tz)
    return Reply(f"```\n{told(stages)}\n```")
