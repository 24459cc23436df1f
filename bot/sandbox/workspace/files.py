"""Uploads as Slack takes them: announced, sent to an address of their own, then shared."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

from bot.sandbox.workspace.errors import Refused

KINDS = {b"\x89PNG\r\n": "image/png", b"\xff\xd8\xff": "image/jpeg", b"GIF8": "image/gif"}


@dataclass(frozen=True, slots=True)
class File:
    """secret: the last part of the address that its bytes are sent to. data: None until they are there."""

    id: str
    name: str
    secret: str = field(repr=False)
    title: str = ""
    data: bytes | None = None

    @property
    def kind(self) -> str:
        """What it is by its first bytes, whatever its name says; empty for all that is no picture."""
        data = self.data or b""
        return next((kind for magic, kind in KINDS.items() if data.startswith(magic)), "")


class Files:
    """keep: told every file whose bytes are there."""

    def __init__(self, keep: Callable[[File], object] = lambda _file: None) -> None:
        self._keep_it = keep
        self._files: dict[str, File] = {}

    def expect(self, name: str) -> File:
        file = File(f"F{secrets.token_hex(5).upper()}", name, secrets.token_urlsafe())
        self._files[file.id] = file
        return file

    def restore(self, files: Iterable[File]) -> None:
        self._files |= {file.id: file for file in files}

    def receive(self, secret: str, data: bytes) -> File:
        """Raises Refused for an address that nobody was given, or whose bytes are here already."""
        for file in self._files.values():
            if secrets.compare_digest(file.secret, secret) and file.data is None:
                return self._keep(replace(file, data=data))
        raise Refused("file_not_found")

    def entitle(self, ident: str, title: str) -> File:
        """Raises Refused unless its bytes have come."""
        return self._keep(replace(self.get(ident), title=title))

    def get(self, ident: str) -> File:
        """Raises Refused unless its bytes have come."""
        file = self._files.get(ident)
        if file is None or file.data is None:
            raise Refused("file_not_found")
        return file

    def _keep(self, file: File) -> File:
        self._keep_it(file)
        self._files[file.id] = file
        return file
