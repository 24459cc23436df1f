"""YAML as people mean it: every scalar is a string until a model says otherwise, and every complaint has a line.

`22:00`, `off`, `0017` and `1e3` survive because BaseLoader converts nothing.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, TypeVar

import yaml
from pydantic import BaseModel, BeforeValidator, ConfigDict, ValidationError

from bot.errors import ConfigError

_DURATION = re.compile(r"(\d+(?:\.\d+)?)([smhdw])")
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}


def seconds(text: object) -> object:
    """`90s`, `15m`, `24h`, `7d`, `1h30m` → seconds. Anything else is refused: a bare number has no unit."""
    if not isinstance(text, str):
        return text
    parts = _DURATION.findall(text)
    if not parts or "".join(n + u for n, u in parts) != text.strip():
        raise ValueError(f"{text!r} is not a duration; write it like 90s, 15m, 24h or 7d")
    return int(sum(timedelta(seconds=float(n) * _UNITS[u]).total_seconds() for n, u in parts))


Duration = Annotated[int, BeforeValidator(seconds)]


class Strict(BaseModel):
    """A part of a file: unknown keys are refused, values do not change afterwards."""

    model_config = ConfigDict(extra="forbid", frozen=True)


@dataclass(frozen=True)
class Located:
    """A YAML document with the line of every key path."""

    name: str
    data: Any
    lines: Mapping[tuple[str, ...], int] = field(default_factory=dict)
    over: Located | None = None  # the file whose part `key` was laid over this one
    key: str = ""

    def where(self, path: tuple[str, ...]) -> str:
        """`file:line: path`: in the file laid over this one, where it stands there."""
        if self.over and path and (self.key, *path[:1]) in self.over.lines:
            full = (self.key, *path)
            return f"{self.over.name}:{self.over.line(full)}: {'.'.join(full)}"
        return f"{self.name}:{self.line(path)}: {'.'.join(path) or 'the file'}"

    def line(self, path: tuple[str, ...]) -> int:
        """Line of the path, or of the nearest parent that is in the file."""
        while path and path not in self.lines:
            path = path[:-1]
        return self.lines.get(path, 1)


def parse(text: str, name: str) -> Located:
    """Raises ConfigError with the line for broken YAML, duplicate keys and merge keys."""
    try:
        root = yaml.compose(text, Loader=yaml.BaseLoader)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f"{name}:{mark.line + 1}" if mark else name
        problem = getattr(error, "problem", None) or "not YAML"
        raise ConfigError(f"{where}: {problem}") from error
    lines: dict[tuple[str, ...], int] = {}
    data = _value(root, (), lines, name) if root is not None else {}
    return Located(name, data, lines)


def read(path: Path) -> Located:
    try:
        return parse(path.read_text(encoding="utf-8"), str(path))
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read: {error}") from error


def _value(node: yaml.Node, path: tuple[str, ...], lines: dict[tuple[str, ...], int], name: str) -> Any:
    lines.setdefault(path, node.start_mark.line + 1)
    if isinstance(node, yaml.SequenceNode):
        return [_value(item, (*path, str(i)), lines, name) for i, item in enumerate(node.value)]
    if not isinstance(node, yaml.MappingNode):
        return node.value
    result: dict[str, Any] = {}
    for key_node, value_node in node.value:
        key = str(key_node.value)
        if key in result:
            raise ConfigError(f"{name}:{key_node.start_mark.line + 1}: {key!r} stands twice here")
        lines[(*path, key)] = key_node.start_mark.line + 1
        result[key] = _value(value_node, (*path, key), lines, name)
    return result


M = TypeVar("M", bound=BaseModel)


def validate(model: type[M], located: Located) -> M:
    """The document as the model, or a ConfigError naming every fault with its line."""
    try:
        return model.model_validate(located.data if located.data != "" else {})
    except ValidationError as error:
        faults = [_fault(model, located, dict(item)) for item in error.errors()]
        raise ConfigError("\n".join(faults)) from error


def _fault(model: type[BaseModel], located: Located, item: Mapping[str, Any]) -> str:
    path = tuple(str(part) for part in item["loc"])
    where = located.where(path)
    if item["type"] == "extra_forbidden":
        return f"{where}: unknown key{_suggestion(model, path)}"
    if item["type"] == "missing":
        return f"{where}: missing"
    return f"{where}: {str(item['msg']).removeprefix('Value error, ')}"


def _suggestion(model: type[BaseModel], path: tuple[str, ...]) -> str:
    near = difflib.get_close_matches(path[-1], _fields_at(model, path[:-1]), n=1, cutoff=0.5)
    return f"; did you mean {near[0]!r}?" if near else ""


def _fields_at(model: type[BaseModel], path: tuple[str, ...]) -> list[str]:
    """Field names of the nested model at the path; all names of all models where the path leads elsewhere."""
    current: type[BaseModel] | None = model
    for part in path:
        info = current.model_fields.get(part, current.model_fields.get("root")) if current else None
        current = _inner_model(info.annotation) if info else current
    return list(current.model_fields) if current else []


def _inner_model(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    for argument in getattr(annotation, "__args__", ()):
        found = _inner_model(argument)
        if found:
            return found
    return None


def merged(base: Any, over: Any) -> Any:
    """`over` laid on `base`, mapping by mapping; anything else replaces."""
    if isinstance(base, Mapping) and isinstance(over, Mapping):
        keys = [*base, *(key for key in over if key not in base)]
        return {k: merged(base[k], over[k]) if k in base and k in over else over.get(k, base.get(k)) for k in keys}
    return over
