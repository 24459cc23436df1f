"""A tick over 1,250 nodes of 8 GPUs: the size at which Prometheus itself would need longer here than `make bench` may.

What a real Prometheus told of 63 nodes is told again for twenty times as many by a small server of its own process. It
answers both sides from memory, so that all the time measured is that of the transport and of who reads the answers.
"""

from __future__ import annotations

import json
import multiprocessing
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from multiprocessing.connection import Connection
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from bench.history import FAULT, NODES

COUNT = 1250
COPIES = -(-COUNT // len(NODES))
NODE = re.compile(r"node-(\d\d)")
SICK, WELL = FAULT[0], "node-16"
Form = tuple[str, tuple[tuple[str, str], ...]]


def fleet() -> list[str]:
    """Their names; only the first copy has the node with the fault."""
    return [_name(copy, node) for copy in range(COPIES) for node in NODES][:COUNT]


def _name(copy: int, node: str) -> str:
    return f"node-{copy:02d}{node.removeprefix('node-')}"


def form(url: str, fields: Mapping[str, Any]) -> Form:
    """A question, whoever asks it."""
    return urlsplit(url).path, tuple(sorted((name, str(value)) for name, value in fields.items()))


def multiplied(body: bytes) -> bytes:
    """The answer about 63 nodes as one about all of them; what is about no node stays as it is."""
    answer = json.loads(body)
    answer["data"]["result"] = [again for series in answer["data"]["result"] for again in _copies(series)]
    return json.dumps(answer, separators=(",", ":")).encode()


def _copies(series: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    labels = json.dumps(series["metric"])
    found = NODE.search(labels)
    if not found:
        yield series
        return
    wanted = set(fleet())
    for copy in range(COPIES):
        for node in _stands_for(found[0], copy):
            if _name(copy, node) in wanted:
                metric = NODE.sub(_name(copy, node), labels)
                yield {**series, "metric": json.loads(metric)}


def _stands_for(node: str, copy: int) -> Sequence[str]:
    """One sick node of the fleet is enough: many at once would be a storm."""
    if copy == 0:
        return (node,)
    return {SICK: (), WELL: (WELL, SICK)}.get(node, (node,))


@contextmanager
def serving(answers: Mapping[Form, bytes]) -> Iterator[str]:
    """The address of a server that knows these answers and no other."""
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.get_context("fork").Process(target=_serve, args=(answers, theirs), daemon=True)
    process.start()
    try:
        yield f"http://127.0.0.1:{ours.recv()}"
    finally:
        process.terminate()
        process.join()


def _serve(answers: Mapping[Form, bytes], told: Connection) -> None:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            fields = self.rfile.read(int(self.headers["Content-Length"])).decode()
            body = answers.get(form(self.path, dict(parse_qsl(fields))))
            self.send_response(200 if body else 404)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body or b"")))
            self.end_headers()
            self.wfile.write(body or b"")

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    told.send(server.server_port)
    server.serve_forever()
