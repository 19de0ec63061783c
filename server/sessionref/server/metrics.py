"""What the service has done, counted: one structured log line a request, Prometheus text, a summary at the end.

No query, no text and no path is in any of it: a method's name, an outcome, milliseconds and bytes.
"""

from __future__ import annotations

import logging
from collections import Counter, defaultdict
from typing import Final

from sessionref.protocol.errors import ProtocolCode, RpcError, SessionReferenceError
from sessionref.protocol.methods import METHODS

__all__ = ("Metrics",)

logger = logging.getLogger("sessionref.requests")

_OTHER: Final = "other"
_OK: Final = "ok"


class Metrics:
    """Counts of one process; told of every answer by the engine."""

    def __init__(self) -> None:
        self._answers: Counter[tuple[str, str]] = Counter()
        self._seconds: defaultdict[str, float] = defaultdict(float)
        self._bytes: Counter[str] = Counter()
        self.connections = 0
        """Connections served since the start."""
        self.open_connections = 0
        self.refused_connections = 0

    def answered(self, method: str, failure: RpcError | None, seconds: float, answer_bytes: int) -> None:
        """Count one answered request, and log it at level INFO."""
        # A peer's own names would be labels without a bound, and are not ours to log.
        name = method if method in METHODS else _OTHER
        outcome = _outcome(failure)
        self._answers[name, outcome] += 1
        self._seconds[name] += seconds
        self._bytes[name] += answer_bytes
        if logger.isEnabledFor(logging.INFO):
            logger.info("request method=%s outcome=%s ms=%.1f bytes=%d", name, outcome, seconds * 1000, answer_bytes)

    def summary(self) -> str:
        """One line about the whole run."""
        failed = sum(count for (_, outcome), count in self._answers.items() if outcome != _OK)
        return (
            f"summary requests={self._answers.total()} failed={failed} connections={self.connections} "
            f"refused_connections={self.refused_connections} bytes={self._bytes.total()}"
        )

    def prometheus(self, *, in_flight: int, busy_threads: int) -> str:
        """The counts in the Prometheus text format, version 0.0.4."""
        lines = _metric("sessionref_requests_total", "counter", "Requests answered, by method and outcome.")
        lines += [
            f'sessionref_requests_total{{method="{method}",outcome="{outcome}"}} {count}'
            for (method, outcome), count in sorted(self._answers.items())
        ]
        lines += _metric("sessionref_request_seconds", "summary", "Time from receipt to answer.")
        for method, seconds in sorted(self._seconds.items()):
            count = sum(answered for (name, _), answered in self._answers.items() if name == method)
            lines.append(f'sessionref_request_seconds_sum{{method="{method}"}} {seconds:.6f}')
            lines.append(f'sessionref_request_seconds_count{{method="{method}"}} {count}')
        lines += _metric("sessionref_answer_bytes_total", "counter", "Bytes of answers, by method.")
        lines += [
            f'sessionref_answer_bytes_total{{method="{method}"}} {size}' for method, size in sorted(self._bytes.items())
        ]
        for name, kind, meaning, value in (
            ("sessionref_connections_total", "counter", "Connections served.", self.connections),
            (
                "sessionref_refused_connections_total",
                "counter",
                "Connections over the limit.",
                self.refused_connections,
            ),
            ("sessionref_open_connections", "gauge", "Connections open now.", self.open_connections),
            ("sessionref_requests_in_flight", "gauge", "Requests not answered yet.", in_flight),
            ("sessionref_busy_threads", "gauge", "Threads that read or spill now.", busy_threads),
        ):
            lines += [*_metric(name, kind, meaning), f"{name} {value}"]
        return "\n".join(lines) + "\n"


def _outcome(failure: RpcError | None) -> str:
    if failure is None:
        return _OK
    if isinstance(failure, SessionReferenceError):
        return str(failure.code)
    return ProtocolCode(failure.number).name if failure.number in list(ProtocolCode) else str(failure.number)


def _metric(name: str, kind: str, meaning: str) -> list[str]:
    return [f"# HELP {name} {meaning}", f"# TYPE {name} {kind}"]
