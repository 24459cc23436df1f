"""Which runs were where."""

from __future__ import annotations

from bot.model import Attempt, Session
from bot.storage.window import Span, spans


def test_every_attempt_that_ran_is_a_span_and_what_only_waits_is_none() -> None:
    nodes = ("node-01", "node-02")
    attempts = (
        Attempt("1", 0, "FAILED", nodes, 100, 200),
        Attempt("1", 1, "FAILED", nodes, 300, 900),
        Attempt("1", 2, "RUNNING", nodes, 1000),
        Attempt("1", 3, "PENDING", nodes, 2000),
    )
    session = Session("haein/1@5", "session-1", "haein", ("1",), "llm", "u", "xidbot", 5, attempts=attempts)
    assert spans([session], since=250) == [Span("haein/1@5", nodes, 300, 900), Span("haein/1@5", nodes, 1000, None)]
