"""Whatever the text, Slack takes the message; and nothing in a value becomes a mention, a link or markup."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jinja2 import UndefinedError

from templates import (
    Mrkdwn,
    clock,
    code,
    codeblock,
    duration,
    environment,
    escape,
    node_list,
    number,
    paragraphs,
    person,
)
from templates.blocks import (
    BLOCKS,
    BUTTONS,
    SECTION,
    TOTAL,
    Block,
    Button,
    Card,
    card_blocks,
    fallback,
    plain,
    size,
    stamp,
    text_block,
)
from templates.cut import cut_end, cut_middle, split
from templates.validate import validate

APPROVE = Button(
    "approve", "Approve: drain and requeue", "412.1.1", "primary", "Drain node-17 and requeue session-123?"
)


def texts(blocks: list[Block]) -> str:
    return json.dumps(blocks, ensure_ascii=False)


def shown(source: str, **values: object) -> str:
    return environment().from_string(source).render(values)


# -- escaping ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "escaped"),
    [
        ("<!channel> & <@U01>", "&lt;!channel&gt; &amp; &lt;@\u2060U01&gt;"),
        ("ping @here and @gpu-oncall", "ping @\u2060here and @\u2060gpu-oncall"),
        ("alice@example.com", "alice@example.com"),
        ("`rm` ```x```", "ˋrmˋ ˋˋˋxˋˋˋ"),
        ("two\nlines\x00\x1b[31m", "two lines [31m"),
        ("right\u202eleft\u200b", "rightleft"),
        ("\ud800 lone", " lone"),
        (None, "unknown"),
        (17, "17"),
        (Mrkdwn("*bold*"), "*bold*"),
    ],
)
def test_a_value_shows_and_does_nothing_else(value: object, escaped: str) -> None:
    assert escape(value) == escaped


def test_every_value_in_a_template_is_escaped_unless_it_is_mrkdwn() -> None:
    assert shown("*{{ a }}* {{ b }}", a="<!here>", b=Mrkdwn("<@U02>")) == "*&lt;!here&gt;* <@U02>"


def test_quotes_are_not_html() -> None:
    assert shown("{{ a }}", a='"it\'s"') == '"it\'s"'


def test_macros_and_blocks_escape_once() -> None:
    source = "{% macro m(x) %}_{{ x }}_{% endmacro %}{{ m('<') }}{% set s %}*{{ a }}*{% endset %}{{ s }}"
    assert shown(source, a="&") == "_&lt;_*&amp;*"


def test_a_misspelt_name_is_an_error() -> None:
    with pytest.raises(UndefinedError):
        shown("{{ nodde }}", node="node-17")


def test_mrkdwn_escapes_what_is_formatted_into_it() -> None:
    assert Mrkdwn("*{}*").format("<!here>") == "*&lt;!here&gt;*"


def test_code_cannot_be_left() -> None:
    assert code("a`b") == "`aˋb`"
    assert code("") == ""


def test_a_code_block_keeps_lines_head_and_tail() -> None:
    block = codeblock("\n".join(f"line {n} ```" for n in range(1000)))
    assert block.startswith("```\nline 0 ˋˋˋ\n")
    assert block.endswith("line 999 ˋˋˋ\n```")
    assert "characters left out" in block
    assert len(block) < SECTION


@pytest.mark.parametrize(
    ("who", "mention"),
    [("U02", "<@U02>"), ("S0ONCALL", "<!subteam^S0ONCALL>"), ("os:alice", "alice"), ("xidbot", "xidbot")],
)
def test_people_are_mentioned_by_id(who: str, mention: str) -> None:
    assert person(who) == mention


# -- filters -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"), (-5, "0 s"), (90, "90 s"), (119, "119 s"), (120, "2 min"), (51 * 60, "51 min"), (3599, "1 h"),
        (3 * 3600 + 600, "3 h 10 min"), (47 * 3600, "47 h"), (172_800, "2 d"), (9 * 86_400 + 7_200, "9 d 2 h"),
        (None, "unknown"), (float("nan"), "unknown"),
    ],
)  # fmt: skip
def test_duration(seconds: float | None, text: str) -> None:
    assert duration(seconds) == text


def test_clock_is_local_to_the_reader_and_falls_back_to_the_site() -> None:
    assert clock(1_700_000_000, "Asia/Seoul") == "<!date^1700000000^{time}|07:13>"
    assert clock(1_700_000_000, "Asia/Seoul", day=True) == (
        "<!date^1700000000^{date_short_pretty} {time}|Wed 15 Nov 07:13>"
    )
    assert shown("{{ at | clock(tz) }}", at=0, tz="UTC") == "<!date^0^{time}|00:00>"


@pytest.mark.parametrize(
    ("value", "text"),
    [(41250, "41,250"), (0.5, "0.5"), (41250.0, "41,250"), (100, "100"), (1 / 3, "0.33"), (None, "unknown")],
)
def test_number(value: float | None, text: str) -> None:
    assert number(value) == text


@pytest.mark.parametrize(
    ("nodes", "text"),
    [
        ([], ""),
        (["node-17"], "node-17"),
        (["node-02", "node-01", "node-04", "node-03", "node-17"], "node-[01-04,17]"),
        (["b1", "a1", "login", "a2"], "a[1-2], b1, login"),
        (["node-9", "node-10", "node-09"], "node-9, node-[09-10]"),
        (["17"], "17"),
        (["gpu-1-2", "gpu-1-3"], "gpu-1-[2-3]"),
        ([f"x{n}y" for n in range(25)], None),
    ],
)
def test_node_list(nodes: list[str], text: str | None) -> None:
    folded = node_list(nodes)
    assert folded == text if text is not None else folded.endswith(" and 5 more")


def test_paragraphs_split_at_blank_lines_outside_code() -> None:
    assert paragraphs("a\nb\n\n \n```\nc\n\nd\n```\n\ne\n") == ("a\nb", "```\nc\n\nd\n```", "e")


# -- cutting -----------------------------------------------------------------------------------------------------------


@given(st.text(alphabet="a<@U>&amp;lt;|` \n", max_size=3000), st.integers(100, 400))
def test_cutting_breaks_no_token(text: str, limit: int) -> None:
    cut = cut_middle(text, limit)
    assert len(cut) <= max(limit, 0) or cut == text
    assert len(cut_end(text, limit)) <= limit
    assert all(len(piece) <= limit for piece in split(text, limit))


def test_a_mention_is_kept_whole_or_not_at_all() -> None:
    text = ("x" * 7 + "<!date^1700000000^{time}|02:13>&amp;") * 400
    for limit in range(300, 360):
        head, tail = cut_middle(text, limit).split("\n… ")
        assert head.count("<") == head.count(">")
        assert head.count("&") == head.count(";")
        assert tail.count("<") == tail.count(">")


def test_a_code_block_goes_on_in_the_next_section() -> None:
    pieces = split("```\n" + "line\n" * 1000 + "```", 500)
    assert len(pieces) > 5
    assert all(piece.count("```") == 2 for piece in pieces)


# -- cards -------------------------------------------------------------------------------------------------------------


def test_a_card() -> None:
    card = Card(
        "412.1.main", (":red_circle: *node-17 lost a GPU*", "*Hurt:* session-123"), (APPROVE,), "_mode approve_"
    )
    blocks = card_blocks(card)
    assert [block["type"] for block in blocks] == ["section", "section", "actions", "context"]
    assert blocks[0]["block_id"] == "412.1.main"
    assert [block.get("block_id") for block in blocks[1:]] == [None, None, None]
    assert validate(blocks) == []


def test_text_says_nothing_by_accident() -> None:
    """Without `verbatim` Slack turns bare words such as @here and #gpu into mentions and links."""
    section = card_blocks(Card("a", ("x",)))[0]
    assert section["text"] == {"type": "mrkdwn", "text": "x", "verbatim": True}


@pytest.mark.parametrize("length", [3000, 3001, 6000, 12_000])
def test_long_text_is_split(length: int) -> None:
    blocks = card_blocks(Card("a", ("Q" * length,)))
    assert validate(blocks) == []
    kept = texts(blocks).count("Q")
    assert kept == length if length < 12_000 else 9_000 < kept < length


def test_far_too_long_text_keeps_head_and_tail() -> None:
    card = Card("a", ("*The head*", "log " * 20_000, "*The tail*"), (APPROVE,), "_footer_")
    blocks = card_blocks(card)
    assert validate(blocks) == []
    assert blocks[0]["text"] == {"type": "mrkdwn", "text": "*The head*", "verbatim": True}
    assert "*The tail*" in texts(blocks)
    assert "characters left out" in texts(blocks)
    assert "_footer_" in texts(blocks)
    assert size(blocks) > TOTAL / 2


def test_two_buttons_of_one_kind_have_two_ids() -> None:
    blocks = card_blocks(Card("a", ("x",), (APPROVE, Button("approve", "Only drain", "412.1.2"))))
    assert '"approve:2"' in texts(blocks)
    assert validate(blocks) == []


def test_a_long_block_id_is_shortened_the_same_way_each_time() -> None:
    first, second = (str(card_blocks(Card("t" * 300, ("x",)))[0]["block_id"]) for _ in range(2))
    other = str(card_blocks(Card("t" * 301, ("x",)))[0]["block_id"])
    assert first == second != other
    assert len(first) <= 255


@pytest.mark.parametrize(
    "wrong", [("", "v"), ("a", " "), ("a" * 51, "v"), ("a", "v" * 101), ("A b", "v"), ("a:b", "v"), ("a", "v\n")]
)
def test_a_button_that_could_not_come_back_is_refused(wrong: tuple[str, str]) -> None:
    with pytest.raises(ValueError, match="button"):
        Button(wrong[0], "text", wrong[1])


def test_a_card_that_could_not_be_found_again_is_refused() -> None:
    with pytest.raises(ValueError, match="block_id"):
        Card("", ("x",))


def test_too_many_buttons_are_refused() -> None:
    with pytest.raises(ValueError, match="buttons"):
        Card("a", (), (APPROVE,) * (BUTTONS + 1))


ANY = st.text(max_size=200) | st.text(alphabet='`<>&@*\n\\"🔥x ', max_size=200)
LONG = st.builds(lambda text, times: text * times, ANY, st.integers(0, 150))
BUTTON = st.builds(
    Button,
    st.from_regex("[a-z][a-z0-9_]{0,49}", fullmatch=True),
    LONG,
    st.text("0123456789.<&@é🔥", min_size=1, max_size=100),
    st.sampled_from(["", "primary", "danger"]),
    LONG,
)
CARD = st.builds(
    Card,
    st.text(min_size=1, max_size=400),
    st.lists(LONG, max_size=30).map(tuple),
    st.lists(BUTTON, max_size=BUTTONS).map(tuple),
    LONG,
)


@settings(max_examples=100, deadline=None)
@given(CARD)
def test_any_card_is_valid(card: Card) -> None:
    blocks = card_blocks(card)
    assert validate(blocks) == []
    assert size(blocks) <= TOTAL
    assert len(blocks) <= BLOCKS
    assert 0 < len(fallback(card)) <= 1000
    assert len(plain(blocks)) <= 3900
    assert validate(stamp([text_block(plain(blocks))], card.block_id)) == []


@settings(max_examples=200)
@given(st.text())
def test_no_value_can_mention_or_link(value: str) -> None:
    line = shown("{{ v }} {{ v | code }}", v=value)
    assert "<" not in line
    assert ">" not in line
    assert "\n" not in line
    assert line.count("`") in (0, 2)


def test_notifications_get_plain_words_and_keep_mentions() -> None:
    card = Card("a", ("*node-17* lost a GPU at <!date^1^{time}|02:13>, <!subteam^S0ONCALL>", "~x~ _y_", "third"))
    assert fallback(card) == "node-17 lost a GPU at 02:13, <!subteam^S0ONCALL>\nx y"


def test_as_plain_text_buttons_become_what_to_type() -> None:
    blocks = card_blocks(Card("a", ("*one*", "two"), (APPROVE,), "foot"))
    assert plain(blocks) == "one\ntwo\nApprove: drain and requeue: type /xid approve 412.1.1\nfoot"


# -- the validator -----------------------------------------------------------------------------------------------------


def text(kind: str, value: str) -> Block:
    return {"type": kind, "text": value}


def button(**changes: object) -> Block:
    made: Block = {"type": "button", "text": text("plain_text", "x"), "action_id": "a"}
    return made | changes


def actions(*elements: Block) -> list[Block]:
    return [{"type": "actions", "elements": list(elements)}]


def section(value: str) -> Block:
    return {"type": "section", "text": text("mrkdwn", value)}


DIVIDER: Block = {"type": "divider"}
X = text("mrkdwn", "x")
LIMITS: list[tuple[str, list[Block], list[Block]]] = [
    ("blocks", [DIVIDER] * 50, [DIVIDER] * 51),
    ("section", [section("x" * 3000)], [section("x" * 3001)]),
    ("header", [{"type": "header", "text": text("plain_text", "x" * 150)}],
     [{"type": "header", "text": text("plain_text", "x" * 151)}]),
    ("fields", [{"type": "section", "fields": [X] * 10}], [{"type": "section", "fields": [X] * 11}]),
    ("field", [{"type": "section", "fields": [text("mrkdwn", "x" * 2000)]}],
     [{"type": "section", "fields": [text("mrkdwn", "x" * 2001)]}]),
    ("context", [{"type": "context", "elements": [X] * 10}], [{"type": "context", "elements": [X] * 11}]),
    ("context text", [{"type": "context", "elements": [text("mrkdwn", "x" * 3000)]}],
     [{"type": "context", "elements": [text("mrkdwn", "x" * 3001)]}]),
    ("buttons", actions(*(button(action_id=str(n)) for n in range(25))),
     actions(*(button(action_id=str(n)) for n in range(26)))),
    ("label", actions(button(text=text("plain_text", "x" * 75))), actions(button(text=text("plain_text", "x" * 76)))),
    ("value", actions(button(value="x" * 2000)), actions(button(value="x" * 2001))),
    ("action_id", actions(button(action_id="x" * 255)), actions(button(action_id="x" * 256))),
    ("block_id", [DIVIDER | {"block_id": "x" * 255}], [DIVIDER | {"block_id": "x" * 256}]),
    ("all", [section("x" * 2580)] * 5, [section("x" * 2590)] * 5),
]  # fmt: skip


@pytest.mark.parametrize(("fits", "too_much"), [row[1:] for row in LIMITS], ids=[row[0] for row in LIMITS])
def test_slack_limits(fits: list[Block], too_much: list[Block]) -> None:
    assert validate(fits) == []
    assert validate(too_much) != []


@pytest.mark.parametrize(
    "wrong",
    [
        [],
        [{"type": "nope"}],
        [{}],
        [section("")],
        [section("  ")],
        [{"type": "section"}],
        [{"type": "section", "text": 5}],
        [{"type": "header", "text": X}],
        [{"type": "context", "elements": []}],
        [DIVIDER | {"colour": "red"}],
        [DIVIDER | {"block_id": "a"}, section("x") | {"block_id": "a"}],
        actions(),
        actions({"type": "nope"}),
        actions(button(), button()),
        actions(button(text=X)),
        actions(button(style="blue")),
        actions(button(confirm={part: text("plain_text", "x" * 101) for part in ("title", "text", "confirm", "deny")})),
        [{"type": "image", "image_url": "https://example.com/x.png"}],
        [{"type": "alert", "text": text("plain_text", "x")}],
    ],
    ids=str,
)
def test_what_slack_would_refuse(wrong: list[Block]) -> None:
    assert validate(wrong) != []


def test_a_modal_may_hold_more() -> None:
    assert validate([DIVIDER] * 100, "modal") == []
    assert validate([DIVIDER] * 101, "modal") != []
