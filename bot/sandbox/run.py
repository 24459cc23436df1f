"""`xidbot run` without Slack tokens: the local workspace in Slack's place, remembered beside the database."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from zoneinfo import ZoneInfo

from bot.sandbox.workspace import remembered, serve, slack_site
from bot.site import Site
from bot.slack import Tokens


@contextmanager
def local_workspace(site: Site, db: str | None) -> Iterator[tuple[Site, Tokens, str]]:
    """The site with the workspace as its Slack, the workspace's tokens, and the page's address."""
    config = site.config
    path = Path(db or config.site.database).with_suffix(".workspace.jsonl")
    path.parent.mkdir(parents=True, exist_ok=True)
    server = serve(remembered(path, ZoneInfo(config.site.timezone)))
    try:
        local = replace(site, config=config.model_copy(update={"slack": slack_site(server)}))
        yield local, Tokens(server.bot_token, server.app_token), server.url
    finally:
        server.stop()
