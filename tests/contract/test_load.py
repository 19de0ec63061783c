"""A few seconds of the load test: one answer a request, and nothing left behind (`tests/benchmarks/load.py`)."""

from __future__ import annotations

from pathlib import Path

from benchmarks.load import CONNECTIONS, run_load


def test_a_load_with_faults_cancels_and_broken_connections_leaves_nothing_behind(tmp_path: Path) -> None:
    report = run_load(tmp_path, 3.0)
    assert report.problems == []
    assert report.stood > 0 < report.broken
    assert report.cancels > 0 < report.failed
    assert report.requests > 5 * CONNECTIONS
