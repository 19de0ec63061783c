"""What the benchmarks print: a table a measure, and the few statistics that they need."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from sessionref.server.tables import format_table

__all__ = ("Measure", "best_seconds", "megabytes", "percentile", "print_measure", "seconds_text")


class Measure(NamedTuple):
    """The figures of one measure."""

    title: str
    headings: list[str]
    rows: list[list[str]]
    notes: Sequence[str] = ()


def print_measure(measure: Measure) -> None:
    """Print a measure as a table with its notes."""
    print(f"\n== {measure.title}")
    print(format_table(measure.headings, measure.rows))
    for note in measure.notes:
        print(f"   {note}")


def percentile(values: Sequence[float], percent: float) -> float:
    """The value below which that share of all lies."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))]


def best_seconds(function: Callable[[], object], repeats: int) -> float:
    """The shortest of several runs: on a busy machine the others measure its other work."""
    taken: list[float] = []
    for _ in range(repeats):
        began = time.perf_counter()
        function()
        taken.append(time.perf_counter() - began)
    return min(taken)


def seconds_text(seconds: float) -> str:
    """Seconds in a unit that can be read."""
    return f"{seconds:.2f} s" if seconds >= 1 else f"{seconds * 1000:.1f} ms"


def megabytes(count: float) -> str:
    """Bytes in MB."""
    return f"{count / 1e6:.1f} MB"
