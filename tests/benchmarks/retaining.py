"""Retention alone: many messages, and one enormous text."""

from __future__ import annotations

import random
from functools import partial
from pathlib import Path
from typing import Final

from benchmarks.figures import Measure, best_seconds, seconds_text
from benchmarks.homes import output, prose
from sessionref.server.retention import retain
from sessionref.server.store import Capture, ConversationItem

__all__ = ("measure_retaining",)

BUDGET: Final = 65_536


def measure_retaining(folder: Path, quick: bool) -> Measure:
    """Every conversation cut to the usual budget."""
    texts = random.Random(1)
    size = 5_000_000 if quick else 50_000_000
    block = output(texts, 100_000)
    mixed = "".join(f"界😀é {word}\n" for word in prose(texts, 60_000).split())
    conversations = {
        "5,000 messages of 180 bytes": [prose(texts, 180) for _ in range(5_000)],
        "20,000 messages of 180 bytes": [prose(texts, 180) for _ in range(20_000)],
        "2,000 checkpoints of 4 kB, all shortened": [prose(texts, 4_000) for _ in range(2_000)],
        f"one text of {size // 10**6} MB, tool output": [block * (size // len(block))],
        f"one text of {size // 10**6} MB, not ASCII": [mixed * (size // len(mixed.encode()))],
        f"one text of {size // 10**6} MB, all <": ["<" * size],
    }
    rows: list[list[str]] = []
    for name, messages in conversations.items():
        capture = _capture(messages, checkpoints="checkpoints" in name)
        retained = retain(capture, "label", BUDGET, _no_check)
        taken = best_seconds(partial(retain, capture, "label", BUDGET, _no_check), 3)
        total = sum(len(message.encode()) for message in messages)
        speed = f"{total / taken / 1e6:.0f} MB/s"
        rows.append([name, seconds_text(taken), speed, str(len(retained.items)), f"{retained.omitted_bytes:,}"])
    headings = ["CONVERSATION", "TIME", "SPEED", "SHOWN", "BYTES OMITTED"]
    return Measure("retention to 64 KiB", headings, rows, ["best of three"])


def _capture(messages: list[str], *, checkpoints: bool) -> Capture:
    return Capture(
        session_id="session",
        cwd=None,
        format_version=4,
        captured_through_seq=len(messages) - 1,
        items=[ConversationItem("user", message, checkpoints) for message in messages],
        diagnostics=[],
    )


def _no_check() -> None:
    """Nobody cancels."""
