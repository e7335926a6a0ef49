"""What the server counts of itself, and all numbers of the node as Prometheus text (format 0.0.4)."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final

from quvatlh.service.pool import Metric

BOUNDS_S: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
PREFIX: Final = "quvatlh_"


class Meter:
    """Routes are those of the table, so what is counted is bounded whatever is asked."""

    def __init__(self) -> None:
        self._requests: Counter[tuple[str, str, int]] = Counter()
        self._buckets: dict[str, list[int]] = {}
        self._seconds: dict[str, float] = {}
        self.streams_cut_off = 0

    def observe(self, method: str, route: str, status: int, seconds: float) -> None:
        self._requests[method, route, status] += 1
        buckets = self._buckets.get(route)
        if buckets is None:
            buckets = self._buckets[route] = [0] * (len(BOUNDS_S) + 1)
            self._seconds[route] = 0.0
        buckets[bisect_left(BOUNDS_S, seconds)] += 1
        self._seconds[route] += seconds

    def text(self, metrics: Iterable[Metric], streams: int) -> str:
        requests = [({"method": m, "route": r, "status": str(s)}, n) for (m, r, s), n in sorted(self._requests.items())]
        own = [
            Metric("http_requests_total", "counter", "Requests answered.", requests),
            Metric("http_streams", "gauge", "Event streams that are open.", [({}, streams)]),
            Metric("http_streams_cut_off_total", "counter", "Clients too slow.", [({}, self.streams_cut_off)]),
        ]
        lines = [line for metric in (*metrics, *own) for line in _lines(metric)]
        return "\n".join([*lines, *self._histogram(), ""])

    def _histogram(self) -> list[str]:
        name = f"{PREFIX}http_request_seconds"
        lines = [f"# HELP {name} From the head of a request to the end of its answer.", f"# TYPE {name} histogram"]
        for route, buckets in sorted(self._buckets.items()):
            total = 0
            for bound, count in zip((*BOUNDS_S, math.inf), buckets, strict=True):
                total += count
                le = "+Inf" if bound == math.inf else f"{bound:g}"
                lines.append(f"{name}_bucket{_labels({'route': route, 'le': le})} {total}")
            lines.append(f"{name}_sum{_labels({'route': route})} {self._seconds[route]:.6f}")
            lines.append(f"{name}_count{_labels({'route': route})} {total}")
        return lines


def _lines(metric: Metric) -> list[str]:
    name = PREFIX + metric.name
    head = [f"# HELP {name} {_escaped(metric.help, quotes=False)}", f"# TYPE {name} {metric.kind}"]
    return head + [f"{name}{_labels(labels)} {_number(value)}" for labels, value in metric.samples]


def _labels(labels: Mapping[str, str]) -> str:
    if not labels:
        return ""
    return "{" + ",".join(f'{name}="{_escaped(value)}"' for name, value in labels.items()) + "}"


def _escaped(text: str, *, quotes: bool = True) -> str:
    text = text.replace("\\", "\\\\").replace("\n", "\\n")
    return text.replace('"', '\\"') if quotes else text


def _number(value: float) -> str:
    if value != value or value in {math.inf, -math.inf}:  # noqa: PLR0124 - NaN
        return {"nan": "NaN", "inf": "+Inf", "-inf": "-Inf"}[str(float(value))]
    return str(int(value)) if value == int(value) else repr(value)
