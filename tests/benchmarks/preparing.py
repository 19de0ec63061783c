"""Prepare of one long conversation, as a host sees it: over stdio, with its snapshot saved and as a preview."""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Any, Final

from benchmarks.figures import Measure, seconds_text
from benchmarks.homes import chat_lines, write_log
from benchmarks.peer import PREPARE, ServerProcess

__all__ = ("measure_preparing",)

PLUGIN_SECONDS: Final = {1_000: 1.6, 5_000: 42.0, 20_000: 730.0}
"""The DSH plugin's own figures."""


def measure_preparing(folder: Path, quick: bool) -> Measure:
    """Median of several calls to one server."""
    rows: list[list[str]] = []
    for messages in (1_000, 5_000) if quick else (1_000, 5_000, 20_000):
        write_log(folder, f"session-{messages}", chat_lines(messages))
        rows += [_row(folder, messages, preview, 3 if quick else 7) for preview in (False, True)]
    notes = ["messages of about 180 bytes, budget 65,536 bytes; linear: the cost of a message stays the same"]
    headings = ["MESSAGES", "SNAPSHOT", "SHOWN", "MEDIAN", "A MESSAGE", "DSH PLUGIN", "PLUGIN / THIS"]
    return Measure("prepare over stdio", headings, rows, notes)


def _row(home: Path, messages: int, preview: bool, repeats: int) -> list[str]:
    references = [{"sessionId": f"session-{messages}"}]
    params: dict[str, Any] = {"agentId": "new", "content": "go on", "references": references, "preview": preview}
    with ServerProcess(home, spills=home / "spills") as server:
        result, _ = server.call(PREPARE, params)
        median = statistics.median(server.call(PREPARE, params)[1] for _ in range(repeats))
    (record,) = result["additionalContext"]["source"]["references"]
    if record["originalMessages"] != messages:
        raise RuntimeError(f"{record['originalMessages']} messages were read")
    plugin = PLUGIN_SECONDS[messages]
    return [
        f"{messages:,}",
        "preview" if preview else "saved",
        str(record["retainedMessages"]),
        seconds_text(median),
        f"{median / messages * 1e6:.1f} us",
        seconds_text(plugin),
        f"{plugin / median:.0f}",
    ]
