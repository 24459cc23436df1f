"""A recording as files, a day at a time: what was begun can be gone on with."""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from itertools import compress
from operator import add
from pathlib import Path
from typing import IO, Generic, Literal, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from bot.sandbox.recording.effects import Floats
from bot.sandbox.recording.recording import Recording

T = TypeVar("T")
Flags = NDArray[np.bool_]
Format = Literal["victoriametrics", "openmetrics"]
SUFFIX: dict[Format, str] = {"victoriametrics": ".jsonl", "openmetrics": ".om.txt"}
BYTES: dict[Format, int] = {"victoriametrics": 20, "openmetrics": 195}  # a sample; measured on 63 nodes
EXACT = 2.0**53  # whole numbers below this are themselves


def write_day(recording: Recording, number: int, folder: Path, form: Format, packed: bool = False) -> Path:
    """The day's file is there as a whole or not at all."""
    path = day_file(recording, number, folder, form, packed)
    part = path.with_name(path.name + ".part")
    with _opened(part, packed) as file:
        lines = _json_lines(recording, number) if form == "victoriametrics" else _open_metrics(recording, number)
        file.writelines(lines)
    os.replace(part, path)
    return path


def day_file(recording: Recording, number: int, folder: Path, form: Format, packed: bool = False) -> Path:
    day = datetime.fromtimestamp(recording.times(number)[0], UTC).date()
    return folder / f"{day}{SUFFIX[form]}{'.gz' if packed else ''}"


def _opened(path: Path, packed: bool) -> IO[bytes]:
    return cast(IO[bytes], gzip.open(path, "wb", compresslevel=1)) if packed else path.open("wb")


# -- VictoriaMetrics: POST /api/v1/import ------------------------------------------------------------------------------


def _json_lines(recording: Recording, number: int) -> Iterator[bytes]:
    """A line for each series."""
    when = _Chosen([f"{time}000" for time in recording.times(number)], ",".join)
    for name, _, labels, values in recording.day(number):
        for own, column, whole in _columns(labels, values):
            texts = _texts(column[whole])
            if texts:
                metric = json.dumps({"__name__": name, **own}, separators=(",", ":"))
                yield f'{{"metric":{metric},"values":[{",".join(texts)}],"timestamps":[{when(whole)}]}}\n'.encode()


# -- OpenMetrics: promtool tsdb create-blocks-from ---------------------------------------------------------------------


def _open_metrics(recording: Recording, number: int) -> Iterator[bytes]:
    """Family after family, series after series, sample after sample."""
    when = _Chosen([f" {time}\n" for time in recording.times(number)], list)
    typed = ""
    for name, counter, labels, values in recording.day(number):
        family = name.removesuffix("_total") if counter else name
        if family != typed:
            yield f"# TYPE {family} {'counter' if counter else 'gauge'}\n".encode()
            typed = family
        for own, column, whole in _columns(labels, values):
            texts = _texts(column[whole])
            if texts:
                text = ",".join(f'{label}="{value}"' for label, value in own.items())
                head = f"{name}{{{text}}} "
                yield (head + head.join(map(add, texts, when(whole)))).encode()
    yield b"# EOF\n"


# -- numbers -----------------------------------------------------------------------------------------------------------


class _Chosen(Generic[T]):
    """Texts of the moments at which there is a sample; most series lack the same ones."""

    def __init__(self, stamps: Sequence[str], made: Callable[[Iterable[str]], T]) -> None:
        self._stamps, self._made = stamps, made
        self._known: dict[bytes, T] = {}

    def __call__(self, whole: Flags) -> T:
        key = whole.tobytes()
        if key not in self._known:
            self._known[key] = self._made(compress(self._stamps, whole.tolist()))
        return self._known[key]


def _columns(labels: Sequence[dict[str, str]], values: Floats) -> Iterator[tuple[dict[str, str], Floats, Flags]]:
    for own, column in zip(labels, np.ascontiguousarray(values.T), strict=True):
        yield own, column, ~np.isnan(column)


def _texts(values: Floats) -> list[str]:
    """The shortest text of each value that reads back as the same number."""
    if not len(values):
        return []
    if (values == values[0]).all():
        return [_text(values[0])] * len(values)
    if (values == np.floor(values)).all() and np.abs(values).max() < EXACT:
        return list(map(str, values.astype(np.int64).tolist()))
    return list(map(repr, values.tolist()))


def _text(value: float) -> str:
    return str(int(value)) if value == int(value) and abs(value) < EXACT else repr(float(value))
