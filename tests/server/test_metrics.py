"""What is counted and shown of requests: names without bounds and texts stay out."""

from __future__ import annotations

import logging
import re
from pathlib import Path

import pytest

from sessionref.protocol.errors import ReadFailedReason, cancelled, invalid_request, method_not_found, read_failed
from sessionref.protocol.methods import CANDIDATES, PREPARE
from sessionref.server.metrics import Metrics
from transport_doubles import candidates, eventually, prepare, serving

NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
SAMPLE = re.compile(rf'({NAME})(?:\{{((?:{NAME}="(?:[^"\\\n]|\\[\\"n])*",?)*)\}})? (-?[0-9.e+]+)')
META = re.compile(rf"# (HELP|TYPE) ({NAME}) (.+)")


def parse(text: str) -> dict[str, float]:
    """Samples by name and labels. Fails on what a Prometheus server would refuse, and on a metric without a type."""
    samples: dict[str, float] = {}
    types: dict[str, str] = {}
    assert text.endswith("\n")
    for line in text.splitlines():
        if meta := META.fullmatch(line):
            if meta[1] == "TYPE":
                assert meta[2] not in types
                assert meta[3] in ("counter", "gauge", "summary")
                types[meta[2]] = meta[3]
            continue
        sample = SAMPLE.fullmatch(line)
        assert sample is not None, line
        family = re.sub("_(sum|count)$", "", sample[1]) if sample[1] not in types else sample[1]
        assert family in types
        key = sample[1] + (f"{{{sample[2]}}}" if sample[2] else "")
        assert key not in samples
        samples[key] = float(sample[3])
    return samples


def counted() -> Metrics:
    metrics = Metrics()
    metrics.answered(CANDIDATES, None, 0.25, 100)
    metrics.answered(CANDIDATES, None, 0.25, 50)
    metrics.answered(PREPARE, read_failed(ReadFailedReason.CORRUPT, "secret-session"), 1.0, 10)
    metrics.answered(PREPARE, cancelled(), 0.5, 10)
    metrics.answered('a peer\'s own "name"\n', method_not_found(), 0.0, 1)
    metrics.answered("another", invalid_request("why"), 0.0, 2)
    return metrics


def test_requests_are_counted_by_method_and_outcome() -> None:
    samples = parse(counted().prometheus(in_flight=3, busy_threads=2))
    totals = {key: value for key, value in samples.items() if key.startswith("sessionref_requests_total")}
    assert totals == {
        f'sessionref_requests_total{{method="{CANDIDATES}",outcome="ok"}}': 2,
        f'sessionref_requests_total{{method="{PREPARE}",outcome="SESSION_REFERENCE_READ_FAILED"}}': 1,
        f'sessionref_requests_total{{method="{PREPARE}",outcome="SESSION_REFERENCE_CANCELLED"}}': 1,
        'sessionref_requests_total{method="other",outcome="METHOD_NOT_FOUND"}': 1,
        'sessionref_requests_total{method="other",outcome="INVALID_REQUEST"}': 1,
    }
    assert samples[f'sessionref_request_seconds_sum{{method="{CANDIDATES}"}}'] == 0.5
    assert samples[f'sessionref_request_seconds_count{{method="{PREPARE}"}}'] == 2
    assert samples[f'sessionref_answer_bytes_total{{method="{CANDIDATES}"}}'] == 150
    assert samples["sessionref_requests_in_flight"] == 3
    assert samples["sessionref_busy_threads"] == 2


def test_a_process_that_has_done_nothing_has_metrics_too() -> None:
    samples = parse(Metrics().prometheus(in_flight=0, busy_threads=0))
    assert samples["sessionref_connections_total"] == 0


def test_the_summary_is_one_line_of_totals() -> None:
    metrics = counted()
    metrics.connections, metrics.refused_connections = 7, 1
    assert metrics.summary() == "summary requests=6 failed=4 connections=7 refused_connections=1 bytes=173"


def test_what_a_peer_names_is_in_no_log_line(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "sessionref.requests"):
        counted()
    lines = caplog.messages
    assert lines[0] == f"request method={CANDIDATES} outcome=ok ms=250.0 bytes=100"
    assert lines[4] == "request method=other outcome=METHOD_NOT_FOUND ms=0.0 bytes=1"
    assert len(lines) == 6
    assert "secret" not in "".join(lines)


def test_nothing_is_logged_above_the_level(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "sessionref.requests"):
        counted()
    assert caplog.messages == []


async def test_the_metrics_of_a_service_tell_what_it_does(tmp_path: Path) -> None:
    async with serving("unix", tmp_path) as world:
        peer = await world.connect()
        await peer.call(candidates(1))
        await peer.send(prepare(2, "hung"))
        await eventually(lambda: world.store.hangs == 1)
        busy = parse(world.service.prometheus())
        world.store.release()
        await peer.receive()
        await world.idle()
        done = parse(world.service.prometheus())
    gauges = ("sessionref_open_connections", "sessionref_requests_in_flight", "sessionref_busy_threads")
    assert [busy[name] for name in gauges] == [1, 1, 1]
    assert [done[name] for name in gauges] == [1, 0, 0]
    assert done[f'sessionref_requests_total{{method="{PREPARE}",outcome="ok"}}'] == 1
    assert done["sessionref_connections_total"] == 1
