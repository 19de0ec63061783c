"""A spawned server, spoken to over its pipes as a host would."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

__all__ = ("CANDIDATES", "PREPARE", "ServerProcess", "environment")

CANDIDATES: Final = "sessionReferenceResolver/candidates"
PREPARE: Final = "sessionReferenceResolver/prepare"


def environment(catalogue: Path | None = None, spills: Path | None = None) -> dict[str, str]:
    """The environment of a server that writes nothing but where it is told to."""
    settings = {"SESSIONREF_CATALOG": catalogue, "SESSIONREF_SPILL_DIRECTORY": spills}
    return {**os.environ, **{name: "off" if path is None else str(path) for name, path in settings.items()}}


class ServerProcess:
    """A server over one DSH home in newline-delimited JSON; a context manager that ends it."""

    def __init__(self, home: Path, *, catalogue: Path | None = None, spills: Path | None = None) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "sessionref.server", "serve", "--stdio", "--store", f"dsh:{home}"],
            env=environment(catalogue, spills),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        self._next_id = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.communicate(timeout=30)

    def send(self, method: str, params: dict[str, Any]) -> int:
        """Send a request. Returns its id."""
        self._next_id += 1
        self._write({"jsonrpc": "2.0", "id": self._next_id, "method": method, "params": params})
        return self._next_id

    def cancel(self, request: int) -> None:
        """Cancel a request."""
        self._write({"jsonrpc": "2.0", "method": "$/cancelRequest", "params": {"id": request}})

    def receive(self) -> dict[str, Any]:
        """The next answer."""
        return self._decoded(self.receive_line())

    def receive_line(self) -> bytes:
        """The next answer as it came."""
        assert self._process.stdout is not None
        return self._process.stdout.readline()

    def call(self, method: str, params: dict[str, Any]) -> tuple[Any, float]:
        """Send a request and wait. Returns the result, and the seconds until its last byte was here."""
        began = time.perf_counter()
        self.send(method, params)
        line = self.receive_line()
        taken = time.perf_counter() - began
        answer = self._decoded(line)
        if "result" not in answer:
            raise RuntimeError(f"{method} failed: {answer}")
        return answer["result"], taken

    def _write(self, message: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(message).encode() + b"\n")
        self._process.stdin.flush()

    @staticmethod
    def _decoded(line: bytes) -> dict[str, Any]:
        if not line:
            raise RuntimeError("the server ended")
        answer: dict[str, Any] = json.loads(line)
        return answer
