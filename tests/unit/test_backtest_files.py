"""Sessions and labels as people write them: every fault is named with its file and line."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from bot.backtest_files import Label, Run, StorageLabel, labels, moment, runs, storage_labels
from bot.errors import ConfigError

HEADER = "session,job,nodes,start,end,state\n"
LABELS = "node,gpu,category,xid,start,end\n"

Read = Callable[[Path], Sequence[Any]]


@pytest.fixture
def table(tmp_path: Path) -> Callable[[str | bytes], Path]:
    def write(text: str | bytes) -> Path:
        path = tmp_path / "table.csv"
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        return path

    return write


Table = Callable[[str | bytes], Path]

# -- times -------------------------------------------------------------------------------------------------------------

TIMES = {
    "1796070901": 1796070901,
    "1796070900.6": 1796070901,
    "1.796070901e9": 1796070901,
    "2026-11-30T20:35:01Z": 1796070901,
    "2026-11-30t20:35:01z": 1796070901,  # RFC 3339 allows both
    "2026-11-30 20:35:01Z": 1796070901,
    "2026-11-30T20:35:00.700Z": 1796070901,
    "2026-12-01T05:35:01+09:00": 1796070901,
}

NO_TIMES = {
    "": "is no time",
    "yesterday": "write 2026-11-30T20:35:01Z or Unix seconds",
    "nan": "no Unix seconds",
    "inf": "no Unix seconds",
    "1e400": "no Unix seconds",
    "1796070901000": "milliseconds?",
    "2026-11-30T20:35:01": "no time zone",
    "2026-11-30": "no time zone",
    "2026-13-01T00:00:00Z": "is no time",
}


@pytest.mark.parametrize(("text", "at"), TIMES.items())
def test_times_are_rfc_3339_or_unix_seconds(text: str, at: int) -> None:
    assert moment(text) == at


@pytest.mark.parametrize(("text", "words"), NO_TIMES.items())
def test_what_is_no_time_says_how_one_looks(text: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        moment(text)


# -- rows --------------------------------------------------------------------------------------------------------------


def test_runs_with_host_lists_and_an_open_end(table: Table) -> None:
    path = table(
        HEADER
        + 'train,7,"node-[01-03,07],gpu9",1796070901,2026-11-30T21:35:01Z,failed\n'
        + "train,8,node-01,1796080000,,RUNNING\n"
    )
    assert runs(path) == [
        Run("train", "7", ("node-01", "node-02", "node-03", "node-07", "gpu9"), 1796070901, 1796074501, "FAILED"),
        Run("train", "8", ("node-01",), 1796080000, None, "RUNNING"),
    ]


def test_session_and_job_stand_in_for_each_other_and_nodes_may_be_unknown(table: Table) -> None:
    assert runs(table(HEADER + ",7,,1,2,\ntrain,,None assigned,1,2,\n")) == [
        Run("7", "7", (), 1, 2),
        Run("train", "train", (), 1, 2),
    ]


def test_states_are_understood_as_sacct_writes_them(table: Table) -> None:
    written = table(HEADER + "a,1,n1,1,2,CANCELLED by 1000\na,1,n1,3,4,CANCELLED+\na,1,n1,5,6,node_fail\n")
    assert [run.state for run in runs(written)] == ["CANCELLED", "CANCELLED", "NODE_FAIL"]


def test_labels_with_and_without_a_code_a_gpu_and_an_end(table: Table) -> None:
    path = table(LABELS + "n1,3,bus,79,100,200\nn2,,thermal,,100,\nn3,0,ecc,0,100,100\n")
    assert labels(path) == [
        Label("n1", "3", "bus", 79, 100, 200),
        Label("n2", "", "thermal", None, 100, None),
        Label("n3", "0", "ecc", None, 100, 100),
    ]


def test_storage_labels(table: Table) -> None:
    path = table("start,end,verdict,node\n100,200,server,\n300,,node_path,n4\n")
    assert storage_labels(path) == [StorageLabel(100, 200, "server"), StorageLabel(300, None, "node_path", "n4")]


@pytest.mark.parametrize(
    "text",
    [
        "\ufeff" + LABELS + "n1,3,bus,79,100,200\n",  # as Excel saves
        LABELS.replace("\n", "\r\n") + "n1,3,bus,79,100,200\r\n",
        " node , gpu,category, xid ,start,end\n n1 ,3, bus, 79 , 100 , 200 \n",
        LABELS + "\n   \n,,,,,\nn1,3,bus,79,100,200\n\n",
        LABELS + '"n1","3","bus","79","100","200"',  # no line end
        "end,start,xid,category,gpu,node\n200,100,79,bus,3,n1\n",
        "node,note,gpu,category,xid,start,end,by\nn1,seen by Kim,3,bus,79,100,200,kim\n",
        LABELS + "n1,3,bus,79,100,200,one,too,many\n",
    ],
    ids=["mark", "windows", "blanks", "empty lines", "quoted", "other order", "more columns", "more cells"],
)
def test_the_same_table_in_other_spellings(table: Table, text: str) -> None:
    assert labels(table(text)) == [Label("n1", "3", "bus", 79, 100, 200)]


def test_a_file_with_a_header_alone_holds_nothing(table: Table) -> None:
    assert runs(table(HEADER)) == []


# -- faults ------------------------------------------------------------------------------------------------------------

BAD_LABELS = {
    "n1,3,bus,79,soon,200": "'soon' is no time",
    "n1,3,bus,79,100,2026-11-30T20:35:01": "no time zone",
    "n1,3,bus,79,200,100": "ends at 100 before it starts at 200",
    "n1,3,bus,79.5,100,200": "xid '79.5' is no code",
    "n1,3,bus,none,100,200": "xid 'none' is no code",
    ",3,bus,79,100,200": "node is empty",
    "n1,3,bus": "'' is no time",
}

BAD_RUNS = {
    "train,7,node-[01-03,100,200,FAILED": "not a host list",
    "train,7,node-[01-99999],100,200,": "more than 4096 hosts",
    "train,7,node-[01-03],login,100,200,FAILED": "'login' is no time",  # a list with a comma wants quotes
    ",,n1,100,200,FAILED": "neither session nor job",
}


@pytest.mark.parametrize(
    ("read", "header", "line", "words"),
    [
        *((labels, LABELS, line, words) for line, words in BAD_LABELS.items()),
        *((runs, HEADER, line, words) for line, words in BAD_RUNS.items()),
    ],
)
def test_a_bad_line_is_named_with_its_file_and_line(
    table: Table, read: Read, header: str, line: str, words: str
) -> None:
    good = "n1,3,bus,79,100,200\n" if read is labels else "train,7,n1,100,200,FAILED\n"
    path = table(header + good + "\n" + line + "\n" + good)
    with pytest.raises(ConfigError) as fault:
        read(path)
    assert str(fault.value).startswith(f"{path}:4: ") and words in str(fault.value)


def test_a_missing_column_is_named_with_what_the_first_line_must_be(table: Table) -> None:
    with pytest.raises(ConfigError, match=r"table.csv:1: no column category, xid .*node,gpu,category,xid,start,end"):
        labels(table("node,gpu,start,end\nn1,3,100,200\n"))


@pytest.mark.parametrize("text", ["", "\n\n", "node;gpu;category;xid;start;end\nn1;3;bus;79;100;200\n"])
def test_what_is_no_such_table_is_refused(table: Table, text: str) -> None:
    with pytest.raises(ConfigError, match=r"table.csv:1: no column node, gpu"):
        labels(table(text))


def test_a_cell_that_no_table_has_is_refused_with_its_line(table: Table) -> None:
    with pytest.raises(ConfigError, match=r"table.csv:2: field larger than"):
        labels(table(LABELS + "n" * 200_000 + ",3,bus,79,100,200\n"))


def test_a_file_that_is_not_there_or_not_text_is_refused(table: Table, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"nowhere.csv: cannot be read: .*No such file"):
        runs(tmp_path / "nowhere.csv")
    with pytest.raises(ConfigError, match=r"table.csv: cannot be read: .*utf-8"):
        runs(table("session".encode("utf-16")))
    with pytest.raises(ConfigError, match="cannot be read"):
        runs(tmp_path)
