"""`sessionref candidates` and `sessionref prepare`: one call to a server that is spawned for it."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Sequence
from typing import Any

import anyio
import msgspec

from sessionref.protocol.jsontext import encode_json
from sessionref.protocol.methods import Candidate, PrepareResult
from sessionref.server.tables import format_table

__all__ = ("run_call",)


def run_call(options: argparse.Namespace, server: Sequence[str]) -> int:
    """Run one call and print its result. Returns the exit code; raises SessionReferenceError as the client does."""
    result = anyio.run(_call, options, server)
    if options.json:
        text = encode_json(result).decode()
    elif isinstance(result, PrepareResult):
        text = _prepared(result)
    else:
        text = _listed(result)
    sys.stdout.write(text + "\n")
    return 0


async def _call(options: argparse.Namespace, server: Sequence[str]) -> Any:
    from sessionref.client import spawn

    cwd = options.cwd or os.getcwd()

    def show(line: str) -> None:
        # Where the server listens is no news to whoever has it on its own pipe.
        if not line.startswith('{"listening"'):
            sys.stderr.write(line + "\n")

    async with spawn(server, on_log=show) as client:
        if options.command == "candidates":
            return await client.candidates(options.agent, options.query, cwd=cwd)
        text = sys.stdin.read() if options.text == "-" else options.text
        return await client.prepare(options.agent, text, cwd=cwd)


def _listed(candidates: Sequence[Candidate]) -> str:
    if not candidates:
        return "No session matches."
    rows = [
        [
            row.display_title,
            "here" if row.same_workspace else _text(row.cwd),
            _when(row.updated_at if isinstance(row.updated_at, int) else row.created_at),
            row.origin,
            row.mention,
        ]
        for row in candidates
    ]
    return format_table(["TITLE", "DIRECTORY", "CHANGED", "ORIGIN", "MENTION"], rows)


def _prepared(result: PrepareResult) -> str:
    parts = [str(result.content)]
    if not isinstance(result.additional_context, msgspec.UnsetType):
        parts.append("--- context for the model " + "-" * 54)
        parts += [block.text for block in result.additional_context.content]
    if not isinstance(result.diagnostics, msgspec.UnsetType):
        parts.append("--- diagnostics " + "-" * 64)
        parts += [f"{row.kind}: {row.detail}" for row in result.diagnostics]
    return "\n".join(parts)


def _text(value: str | msgspec.UnsetType) -> str:
    return "" if isinstance(value, msgspec.UnsetType) else value


def _when(milliseconds: int) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(milliseconds / 1000))
