"""What a Prometheus shows of itself: which jobs are GPU exporters, which labels hold the node."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping

from bot.sources.prometheus import PrometheusSource

USUAL = ("node", "Hostname", "instance")
PATTERN = r"^([^.:]+)"
GPUS = '{__name__=~"DCGM_FI_DEV_GPU_TEMP|DCGM_FI_DEV_FB_USED"}'


def exporters(source: PrometheusSource, at: int | None = None) -> list[str]:
    """Scrape jobs that bring GPU metrics. Raises SourceError."""
    found = source.instant(f"count by (job) ({GPUS})", at)
    return sorted(labels["job"] for labels, _ in found if "job" in labels)


def node_labels(series: Iterable[Mapping[str, str]], nodes: Collection[str]) -> list[str]:
    """The labels whose values lead to nodes, the one that does so most often first; the usual ones after it."""
    hits: Counter[str] = Counter()
    for labels in series:
        for label, value in labels.items():
            cut = re.search(PATTERN, value)
            hits[label] += bool(cut and cut[1] in nodes)
    leading = [label for label, count in sorted(hits.items(), key=lambda h: (-h[1], _rank(h[0]))) if count]
    return [*leading, *(label for label in USUAL if label not in leading)]


def _rank(label: str) -> tuple[int, str]:
    return (USUAL.index(label) if label in USUAL else len(USUAL), label)
