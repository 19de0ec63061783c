"""All measures, each with a name under which it can be run alone."""

from __future__ import annotations

import argparse
import os
import platform
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from benchmarks.agents import measure_agents
from benchmarks.cancelling import measure_cancelling
from benchmarks.cataloguing import measure_cataloguing
from benchmarks.figures import Measure, print_measure
from benchmarks.folding import measure_folding
from benchmarks.listing import measure_listing
from benchmarks.many_sessions import measure_many_sessions
from benchmarks.preparing import measure_preparing
from benchmarks.reading import measure_reading
from benchmarks.retaining import measure_retaining
from benchmarks.starting import measure_starting

__all__ = ("main",)

MEASURES: Final[dict[str, Callable[[Path, bool], Measure]]] = {
    "start": measure_starting,
    "candidates": measure_listing,
    "prepare": measure_preparing,
    "read": measure_reading,
    "fold": measure_folding,
    "retention": measure_retaining,
    "cancel": measure_cancelling,
    "catalogue": measure_cataloguing,
    "agents": measure_agents,
    "many": measure_many_sessions,
}


def main() -> None:
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(description="Measure the service on homes made for it.")
    parser.add_argument("--quick", action="store_true", help="smaller homes and fewer repeats: shows that all runs")
    parser.add_argument("--only", action="append", choices=MEASURES, metavar="NAME", help=", ".join(MEASURES))
    options = parser.parse_args()
    machine = f"{platform.system()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}"
    print(f"Python {platform.python_version()}, {machine}")
    for name in options.only or MEASURES:
        began = time.perf_counter()
        with tempfile.TemporaryDirectory(prefix="sessionref-benchmark-") as folder:
            measure = MEASURES[name](Path(folder), options.quick)
        print_measure(measure._replace(title=f"{name}: {measure.title}"))
        print(f"   (measured in {time.perf_counter() - began:.0f} s)", flush=True)
