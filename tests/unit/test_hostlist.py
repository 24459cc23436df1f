"""Host lists of Slurm's replies, and those that people type."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from ClusterShell.NodeSet import RESOLVER_NOGROUP, NodeSet, NodeSetParseError
from hypothesis import given, settings
from hypothesis import strategies as st

from bot.errors import BadReply, UsageError
from bot.schedulers.hostlist import parse_hostlist, parse_targets

SHARED = Path(__file__).parents[2].parent / "shared" / "data" / "slurm" / "hostlists.jsonl"
KNOWN = [f"node-{n:02d}" for n in range(1, 64)]

LISTS = {
    "node[01-03,07]": "node01 node02 node03 node07",
    "host[001,003-004,006]": "host001 host003 host004 host006",
    "nodeA,nodeB[001,003],nodeC": "nodeA nodeB001 nodeB003 nodeC",
    "listserv01,listserv3": "listserv01 listserv3",
    "a001,a2": "a001 a2",
    "a[001,2-3,004]": "a001 a2 a3 a004",
    "n[98-100,0101]": "n98 n99 n100 n0101",
    "node[08-11]": "node08 node09 node10 node11",
    "node[9-11]": "node9 node10 node11",
    "a[1-2]b[3-4]": "a1b3 a1b4 a2b3 a2b4",
    "r[1-2][3-4]": "r13 r14 r23 r24",
    "worker-[1,0]": "worker-1 worker-0",
    "rack11z[2-4].site": "rack11z2.site rack11z3.site rack11z4.site",
    "a,a,b": "a b",
    "(null)": "",
    "None assigned": "",
    "": "",
}


@pytest.mark.parametrize("text", LISTS)
def test_lists_of_slurm(text: str) -> None:
    assert parse_hostlist(text) == tuple(LISTS[text].split())


def test_width_grows_as_slurm_writes_it() -> None:
    """`scontrol show hostlist` writes n01 … n100 so; ClusterShell refuses to read it."""
    assert parse_hostlist("n[01-100]") == tuple(f"n{n:02d}" for n in range(1, 101))


@pytest.mark.parametrize(
    "text",
    ["node[1-", "node1]", "n[5-3]", "n[]", "n[a-b]", "n[1--3]", "n,,m", ",n", "n,", "n m", "n[1-3]!n2", "@all", "n\n"],
)
def test_anything_else_is_an_error_and_no_node(text: str) -> None:
    with pytest.raises(BadReply):
        parse_hostlist(text)


@pytest.mark.parametrize(
    "text", ["n[0-999999999]", "n[1-4097]", "n[1-100][1-100]", "n[1-4000],m[1-4000]", "n[" + "1" * 400 + "]"]
)
def test_no_list_grows_beyond_the_cap(text: str) -> None:
    with pytest.raises(BadReply):
        parse_hostlist(text)


def test_the_cap_itself_is_allowed() -> None:
    assert len(parse_hostlist("n[1-4096]")) == 4096
    assert len(parse_hostlist("n[1-64]m[1-64]")) == 4096


def test_a_long_text_is_read_in_linear_time() -> None:
    with pytest.raises(BadReply):
        parse_hostlist("a" * 1_000_000 + "!")
    with pytest.raises(BadReply):
        parse_hostlist("a," * 300_000 + "!")


ranges = st.tuples(st.integers(0, 120), st.integers(0, 12), st.integers(1, 4)).map(
    lambda t: (str(t[0]).zfill(t[2]), str(t[0] + t[1]).zfill(t[2]))
)
parts = st.tuples(st.from_regex(r"[a-z][a-z0-9.-]{0,5}[a-z.-]", fullmatch=True), st.lists(ranges, max_size=3)).map(
    lambda t: t[0] + (f"[{','.join(low if low == high else f'{low}-{high}' for low, high in t[1])}]" if t[1] else "")
)


@settings(deadline=None)
@given(st.lists(parts, min_size=1, max_size=4).map(",".join))
def test_the_same_hosts_as_clustershell(text: str) -> None:
    try:
        oracle = set(NodeSet(text, resolver=RESOLVER_NOGROUP))
    except NodeSetParseError as error:  # it refuses a width that grows, which proves nothing
        assert "padding" in str(error)
        return
    assert set(parse_hostlist(text)) == oracle


@settings(deadline=None)
@given(st.text())
def test_no_text_breaks_it(text: str) -> None:
    try:
        names = parse_hostlist(text)
    except BadReply:
        return
    assert all(name and not set(name) & set(" ,[]()!@") for name in names)


@pytest.mark.skipif(not SHARED.is_file(), reason="no shared data beside this checkout")
def test_lists_found_in_the_wild() -> None:
    for line in SHARED.read_text().splitlines():
        case = json.loads(line)
        text, expect = case["hostlist"], case["expect"]
        if expect is None:
            with pytest.raises(BadReply):
                parse_hostlist(text)
        elif isinstance(expect, list):
            assert list(parse_hostlist(text)) == expect
        else:
            assert len(parse_hostlist(text)) == (1 if expect == "single" else int(expect.removeprefix("count:")))


# -- what people type -----------------------------------------------------------------------------


def test_typed_nodes() -> None:
    assert parse_targets("node-17", KNOWN) == ("node-17",)
    assert parse_targets(" node-[17,19-21] ", KNOWN) == ("node-17", "node-19", "node-20", "node-21")
    assert parse_targets("node-[01-08]", KNOWN) == tuple(KNOWN[:8])


REFUSED = {
    "": "no node named",
    "@all": "'@'",
    "*": "'*'",
    "node-[01-63]!node-17": "'!'",
    "node-1;rm -rf /": "';'",
    "node-01 node-02": "' '",
    "node-01\nnode-02": "'\\n'",
    "node-０1": "'０'",
    "--all": "no node --all",
    "node-[01-": "not a host list",
    "node-[1-5000]": "more than 4096",
    "node-[3-1]": "backwards",
    "n" * 5000: "5000 characters",
    "None": "no node named",
    "node-1": "no node node-1",
    "node-[01-09]": "9 nodes at once, 8 are allowed",
    "node-01,node-64": "no node node-64",
}


@pytest.mark.parametrize("text", REFUSED)
def test_refused_and_why(text: str) -> None:
    with pytest.raises(UsageError, match=".") as refused:
        parse_targets(text, KNOWN)
    assert REFUSED[text] in str(refused.value)
    assert len(str(refused.value)) < 300


def test_the_nearest_name_is_suggested() -> None:
    with pytest.raises(UsageError, match="did you mean node-17"):
        parse_targets("nod-17", KNOWN)
    with pytest.raises(UsageError, match="name nodes like"):
        parse_targets("zzz", KNOWN)


@settings(deadline=None)
@given(st.text())
def test_only_known_nodes_come_out(text: str) -> None:
    try:
        names = parse_targets(text, KNOWN)
    except UsageError:
        return
    assert names and set(names) <= set(KNOWN)
