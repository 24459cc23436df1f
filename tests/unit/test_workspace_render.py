"""mrkdwn and blocks as HTML: right, complete for all that our templates emit, and never a way into the page."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from bot.compose import STORY, answer_card, incident_card, story_card
from bot.model import Answer, Incident
from bot.sandbox.workspace.render import BLOCKS, ELEMENTS, EMOJI, Reader, blocks, mrkdwn
from store.store import tag_of
from templates import clock, code, codeblock, environment, escape, person
from templates.blocks import Block, Button, Card, card_blocks
from tests.golden.test_messages import SITUATIONS
from tests.scenarios.world import World

ROOT = Path(__file__).parents[2]
NOW = 1_800_000_000  # Friday 15 January 2027, 17:00 in Seoul
NAMES = {"U02BOB": "Bob", "UOPER": "Olga", "S0ONCALL": "on-call", "C0GPU": "gpu-incidents"}
READER = Reader(NAMES, frozenset({"U02BOB"}), ZoneInfo("Asia/Seoul"), NOW)


# -- mrkdwn ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "html"),
    [
        ("plain", "plain"),
        ("*bold* _italic_ ~gone~ `code`", "<strong>bold</strong> <em>italic</em> <s>gone</s> <code>code</code>"),
        ("*both _at once_*", "<strong>both <em>at once</em></strong>"),
        ("gpu_fault_hard 2*3*4 a~b~c", "gpu_fault_hard 2*3*4 a~b~c"),
        ("* not bold * and ** too", "* not bold * and ** too"),
        ("`*as it is* &lt;b&gt; <@U02BOB>`", "<code>*as it is* &lt;b&gt; &lt;@U02BOB&gt;</code>"),
        ("one\ntwo", "one<br>two"),
        ("```\nif a &lt; b:\n  *x*\n```", "<pre>if a &lt; b:\n  *x*</pre>"),
        ("log:\n```a```\nend", "log:<pre>a</pre>end"),
        ("```open", "```open"),
        ("&gt; quoted\n> too\nnot", "<blockquote>quoted<br>too</blockquote>not"),
        ("1 &lt; 2 &amp;&amp; 3 &gt; 2", "1 &lt; 2 &amp;&amp; 3 &gt; 2"),
        ("&amp;lt;", "&amp;lt;"),
        ("<@U02BOB> <@U9> <@U8|eve>", '<span class="mention me">@Bob</span> <span class="mention">@U9</span> '
         '<span class="mention">@eve</span>'),
        ("<!subteam^S0ONCALL> <#C0GPU>", '<span class="mention">@on-call</span> '
         '<span class="mention">#gpu-incidents</span>'),
        ("<!here>", '<span class="mention me">@here</span>'),
        ("<https://a.test/?x=1&amp;y=2|docs>", '<a href="https://a.test/?x=1&amp;y=2" target="_blank" '
         'rel="noreferrer">docs</a>'),
        ("<javascript:alert(1)|docs>", "&lt;javascript:alert(1)|docs&gt;"),
        ("<script>alert(1)</script>", "&lt;script&gt;alert(1)&lt;/script&gt;"),
        (":red_circle: :nothing_of_ours: 12:30:45",
         '<span class="emoji" role="img" aria-label="red circle">🔴</span> :nothing_of_ours: 12:30:45'),
    ],
)  # fmt: skip
def test_mrkdwn(text: str, html: str) -> None:
    assert mrkdwn(text, READER) == html


@pytest.mark.parametrize(
    ("pattern", "shown"),
    [
        ("{time}", "17:00"),
        ("{time_secs}", "17:00:00"),
        ("{date_num} {time}", "2027-01-15 17:00"),
        ("{date_short_pretty} {time}", "today 17:00"),
        ("{date_long}", "Friday, January 15, 2027"),
        ("{moon}", "{moon}"),
        ("", "as told"),
    ],
)
def test_dates_are_shown_in_the_readers_zone(pattern: str, shown: str) -> None:
    assert f">{shown}</time>" in mrkdwn(f"<!date^{NOW}^{pattern}|as told>", READER)


def test_yesterday_and_a_date_that_is_none() -> None:
    assert ">yesterday</time>" in mrkdwn(f"<!date^{NOW - 86_400}^{{date_pretty}}|x>", READER)
    assert mrkdwn("<!date^soon^{time}|at some time>", READER) == "at some time"
    assert mrkdwn(f"<!date^{10**30}^{{time}}|never>", READER) == "never"


# -- blocks ------------------------------------------------------------------------------------------------------------


def test_every_kind_of_block() -> None:
    text = {"type": "mrkdwn", "text": "*a*"}
    elsewhere = {"type": "image", "image_url": "http://a.test/", "alt_text": "b"}
    title = {"type": "plain_text", "text": "GPU-hours"}
    given: list[Block] = [
        {"type": "header", "text": {"type": "plain_text", "text": ":bell: *Digest*"}},
        {"type": "section", "text": text, "fields": [text, text]},
        {"type": "section", "text": text, "accessory": elsewhere},
        {"type": "divider"},
        {"type": "image", "slack_file": {"id": "F1"}, "alt_text": "lost", "title": title},
        {"type": "context", "elements": [text, {"type": "image", "slack_file": {"id": "F2"}, "alt_text": "c"}]},
    ]  # fmt: skip
    html = str(blocks(given, READER))
    assert "<h3>" in html and "*Digest*</h3>" in html, "plain text knows no markup"
    assert html.count("<strong>a</strong>") == 5
    assert '<figcaption>GPU-hours</figcaption><img src="files/F1" alt="lost">' in html
    assert 'src="http' not in html, "nothing is loaded from elsewhere"
    assert "unknown" not in html


def test_a_button_carries_what_a_click_needs() -> None:
    card = Card("412.1.main", ("x",), (Button("approve", 'Say "yes"', "412.1.1", "primary", "Drain <node-17>?"),))
    made = [{**block, "block_id": block.get("block_id", "b1")} for block in card_blocks(card)]
    (tag,) = [attributes for name, attributes in tags(str(blocks(made, READER))) if name == "button"]
    assert (tag["class"], tag["data-block"], tag["data-action"]) == ("button primary", "b1", "approve")
    assert '"text": "Drain <node-17>?"' in str(tag["data-confirm"])


def test_an_unknown_block_says_so() -> None:
    html = str(blocks([{"type": "carousel"}, {"type": "actions", "elements": [{"type": "datepicker"}]}, {}], READER))
    assert html.count('class="unknown"') == 3
    assert "carousel" in html and "datepicker" in html


# -- what our templates emit -------------------------------------------------------------------------------------------


def all_cards(world: World) -> Iterator[Card]:
    for incident in world.state.all(Incident):
        yield incident_card(incident, world.state, world.policy, "Asia/Seoul")
        told = [STORY[type(e)](e, world.state) for _, e in world.store.events() if type(e) in STORY and tag_of(e)]
        yield story_card(incident.tag, "story", ["\x02S0ONCALL\x03 please look", *told])
    for answer in world.state.all(Answer):
        yield answer_card(answer)


def nothing_left(html: str) -> None:
    """Outside of code no construct of mrkdwn is left as it was written."""
    assert 'class="unknown"' not in html
    text = re.sub(r"<[^>]+>", "\0", re.sub(r"<(code|pre)>.*?</\1>", "\0", html, flags=re.DOTALL))
    assert not re.search(r":[a-z]+_?[a-z_]*:", text), "an emoji that the page does not know"
    assert not re.search(r"&lt;[@#!]|`|(?<!\w)[*_~]\S[^\0]*?\S[*_~](?!\w)", text), text


@pytest.mark.parametrize("name", SITUATIONS)
def test_every_message_of_ours_is_rendered_whole(name: str, tmp_path: Path) -> None:
    play, mode = SITUATIONS[name]
    world = World(tmp_path, write_mode=mode)  # type: ignore[arg-type]
    try:
        play(world)
        for line in ("help", "help exclude", "incidents", "incidents 1", "retri", "exclude node-02 why", "resume"):
            world.say("UADMIN", line)
        cards = list(all_cards(world))
        for card in cards:
            text = str(blocks(card_blocks(card), READER))
            nothing_left(text.replace("&lt;!channel&gt;", ""))  # in one situation a host's name is meant to be nasty
        assert len(cards) > 8
    finally:
        world.store.close()


def test_every_filter_of_the_templates_is_rendered() -> None:
    written = [
        code("train"), codeblock("a\nb"), person("U02BOB"), person("S0ONCALL"), clock(NOW, "Asia/Seoul"),
        clock(NOW, "Asia/Seoul", day=True), *(environment().from_string(f"{{{{ 1|{name} }}}}").render()
        for name in ("number", "duration")),
    ]  # fmt: skip
    for text in written:
        nothing_left(str(mrkdwn(text, READER)))


def test_every_type_that_the_templates_write_is_known() -> None:
    tree = ast.parse((ROOT / "templates/blocks.py").read_text())
    written = {
        value.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Dict)
        for key, value in zip(node.keys, node.values, strict=True)
        if isinstance(key, ast.Constant) and key.value == "type" and isinstance(value, ast.Constant)
    }
    assert {"section", "actions", "context", "button", "mrkdwn"} <= written
    assert written <= set(BLOCKS) | set(ELEMENTS)


def test_every_emoji_that_we_write_is_known() -> None:
    files = [*(ROOT / "templates").glob("*.j2"), *(ROOT / "commands").glob("*.py"), *(ROOT / "bot").rglob("*.py")]
    found = {name for file in files for name in re.findall(r"[\"' ]:([a-z_]+):[\"' ]", file.read_text())}
    assert {"red_circle", "no_entry", "warning"} <= found
    assert found <= set(EMOJI)


# -- safety ------------------------------------------------------------------------------------------------------------

ALLOWED = {
    "a": {"href", "target", "rel"}, "blockquote": set(), "br": set(), "button": {"type", "class", "data-block",
    "data-action", "data-confirm"}, "code": set(), "div": {"class"}, "em": set(), "figcaption": set(), "figure": set(),
    "h3": set(), "hr": set(), "img": {"src", "alt"}, "p": {"class"}, "pre": set(), "s": set(), "span": {"class", "role",
    "aria-label"}, "strong": set(), "time": {"datetime", "title"},
}  # fmt: skip


class Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))
        if tag not in ("br", "hr", "img"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data

    def handle_comment(self, data: str) -> None:
        raise AssertionError(f"a comment: {data}")

    def handle_decl(self, decl: str) -> None:
        raise AssertionError(f"a declaration: {decl}")


def parsed(html: str) -> Tags:
    parser = Tags()
    parser.feed(html)
    parser.close()
    assert parser.open == []
    return parser


def tags(html: str) -> list[tuple[str, dict[str, str | None]]]:
    return parsed(html).seen


def assert_safe(html: str) -> None:
    for tag, attributes in tags(html):
        assert set(attributes) <= ALLOWED[tag]
        assert re.match(r"https?://|mailto:", attributes.get("href") or "https://")
        assert (attributes.get("src") or "files/").startswith("files/")


PIECES = st.sampled_from(
    ["*", "_", "~", "`", "```", "\n", ">", "&gt;", "&lt;", "&amp;", "<", "|", "^", "<!date^", "1800000000^{time}",
     "<@U1", "<!subteam^", "<https://", "<javascript:", '"', "'", " onload=", "<script>", "</pre>", "<!--", "]]>",
     ":red_circle:", ":", "=", "\0", "é", "\u2028"]
)  # fmt: skip
TEXTS = st.lists(PIECES | st.text(max_size=8), max_size=12).map("".join)


@given(TEXTS)
@example("<https://a.test/\" onmouseover='alert(1)|x>")
@example("*`<!date^1^{time}|</time><script>>`*")
def test_whatever_the_text_it_stays_text(text: str) -> None:
    assert_safe(str(mrkdwn(text, READER)))


@given(st.text())
def test_without_markup_every_character_is_shown(text: str) -> None:
    shown = escape(text).replace(":", ";").translate(str.maketrans("*_~", "+++"))
    if shown.startswith("&gt;"):
        return
    wanted = shown.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")
    assert parsed(str(mrkdwn(shown, READER))).text == wanted


@given(TEXTS, TEXTS, TEXTS)
def test_whatever_stands_in_a_block_it_stays_text(one: str, two: str, three: str) -> None:
    plain, marked = {"type": "plain_text", "text": one}, {"type": "mrkdwn", "text": two}
    confirm = {"title": plain, "text": plain, "confirm": plain, "deny": plain}
    button = {"type": "button", "text": plain, "action_id": two, "value": three, "style": three, "confirm": confirm}
    image = {"type": "image", "alt_text": one, "title": plain, "slack_file": {"id": two}, "image_url": three}
    given: list[Any] = [
        {"type": "section", "block_id": three, "text": marked, "fields": [plain, marked], "accessory": button},
        {"type": "actions", "block_id": one, "elements": [button, {"type": two}]},
        {"type": "context", "elements": [image, {"type": "image", "alt_text": one, "image_url": three}]},
        {"type": "header", "text": plain},
        {"type": three},
        image,
    ]
    assert_safe(str(blocks(given, READER)))
