"""Draws docs/img from the running code: `python -m docs.screenshots` (needs Chromium and chromedriver).

The channel with an incident and its thread, the weekly digest with its charts, and the terminal of the demo.
"""

from __future__ import annotations

import html
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from bot.charts import charts
from bot.compose_digest import digest_card
from bot.digest import read_digest
from bot.sandbox.demo import headless
from bot.sandbox.workspace import CHANNEL, Workspace, serve
from bot.slack import SlackChat, web_client
from bot.slack.files import SlackFiles
from bot.weeks import week_of
from templates.blocks import card_blocks, fallback
from tests.golden.test_messages import gpu_fault
from tests.real.browser import Browser
from tests.real.test_workspace import BOB
from tests.real.test_workspace import Bot as PageBot

IMAGES = Path(__file__).parent / "img"
WEEK = "2026-W48"  # the headless demo's seven days
TERMINAL = """<body style="margin:0;background:#16191d"><pre style="color:#d7dde3;font:15px/1.5 'DejaVu Sans Mono',
monospace;padding:18px;margin:0;white-space:pre-wrap">{text}</pre>"""


def incident(root: Path) -> None:
    bot = PageBot(root / "incident")
    page = Browser(root / "browser-1", width=1280, height=760)
    try:
        gpu_fault(bot.world)
        bot.settle()
        page.open(f"{bot.server.url}?as={BOB}")
        page.text("#messages .bot .body")
        page.shot(IMAGES / "incident.png")
        page.click("[data-action=approve]")
        page.keys("#sure [value=yes]", "Enter")
        bot.hear()
        page.click("[data-open]")
        page.text("#replies")
        page.shot(IMAGES / "thread.png")
    finally:
        page.stop()
        bot.away()
        bot.world.store.close()


def digest(root: Path) -> None:
    headless(7, 7, str(root / "week.db"))
    week = week_of(WEEK, "UTC")
    told = read_digest(root / "week.db", week, week.end)
    server = serve(Workspace())
    page = Browser(root / "browser-2", width=1720, height=1130)
    try:
        client = web_client(server.bot_token, server.api_url)
        card = digest_card(told)
        posted = SlackChat(client).post(CHANNEL, fallback(card), card_blocks(card))
        SlackFiles(client).upload(CHANNEL, posted.ts, charts(told))
        page.open(f"{server.url}?as={BOB}")
        page.click("[data-open]")
        page.text("#replies")
        page.shot(IMAGES / "digest.png")
    finally:
        page.stop()
        server.stop()


def terminal(root: Path) -> None:
    words = ["demo", "--headless", "--seed", "7", "--days", "1"]
    said = subprocess.run([sys.executable, "-m", "bot", *words], capture_output=True, text=True, check=True).stdout
    text = html.escape(f"$ xidbot {' '.join(words)}\n{said}")
    (root / "terminal.html").write_text(TERMINAL.format(text=text), encoding="utf-8")
    page = Browser(root / "browser-3", width=900, height=420)
    try:
        page.open((root / "terminal.html").as_uri())
        page.shot(IMAGES / "terminal.png")
    finally:
        page.stop()


if __name__ == "__main__":
    with TemporaryDirectory() as folder:
        for draw in (incident, digest, terminal):
            draw(Path(folder))
