"""What the tests of foreign clients share: servers as processes, Node scripts, and what every client must have seen."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NoReturn

import msgspec
import pytest

__all__ = (
    "AGENT",
    "CANCELLED",
    "NODE_FOLDER",
    "NOT_FOUND",
    "PATIENCE_SECONDS",
    "Calls",
    "SlowSessions",
    "assert_cancelled_in_the_end",
    "assert_conversation",
    "command_of_server",
    "environment",
    "install_node_modules",
    "missing",
    "run_node",
    "running_server",
)

NODE_FOLDER: Final = Path(__file__).parent / "node"
AGENT: Final = "a foreign host"

PATIENCE_SECONDS: Final = 120
"""Not a measurement: nothing here takes a tenth of it, and a client that waits for ever must not stop the run."""

NOT_FOUND: Final = {
    "code": -32015,
    "message": "no configured store has the referenced session",
    "data": {"code": "SESSION_REFERENCE_READ_FAILED", "reason": "not-found", "sessionId": "nobody", "inputIndex": 0},
}
CANCELLED: Final = {
    "code": -32800,
    "message": "the request was cancelled",
    "data": {"code": "SESSION_REFERENCE_CANCELLED"},
}

Calls = dict[str, Any]
"""What a client saw, as it printed it."""


class SlowSessions(msgspec.Struct, frozen=True):
    """A DSH home whose sessions take seconds to read, all of them in one request."""

    home: Path
    ids: list[str]

    def settings(self, **more: Any) -> dict[str, Any]:
        """The settings of a script that cancels."""
        return {"task": "cancels", "slow": self.ids, **more}


def missing(what: str) -> NoReturn:
    """A peer is not installed: a reason to skip, but not where everything is meant to be installed."""
    if os.environ.get("CI") == "true":
        pytest.fail(f"{what}, and with CI=true every peer must be there")
    pytest.skip(what)


def environment() -> dict[str, str]:
    """The environment without settings of the person who runs the tests."""
    return {name: value for name, value in os.environ.items() if not name.startswith("SESSIONREF_")}


def command_of_server(*options: str, home: Path | None = None) -> list[str]:
    """The command of a server with the sample sessions, or those of a DSH home; it saves no transcripts."""
    store = "sample" if home is None else f"dsh:{home}"
    command = [sys.executable, "-m", "sessionref.server", "serve"]
    return [*command, *options, "--store", store, "--spill-directory", "off"]


@contextmanager
def running_server(*options: str, home: Path | None = None) -> Generator[dict[str, dict[str, Any]]]:
    """A server that listens as the options say; yields its addresses by transport.

    In the end it must exit with 0 and have had nothing to complain about.
    """
    command = command_of_server(*options, "--exit-with-stdin", home=home)
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment(), text=True
    )
    with process:
        try:
            assert process.stdout is not None
            addresses = json.loads(process.stdout.readline())["listening"]
            yield {address["transport"]: address for address in addresses}
            printed, complaints = process.communicate(timeout=PATIENCE_SECONDS)
        finally:
            process.kill()
    assert (process.returncode, printed, complaints) == (0, "", "")


def install_node_modules() -> Path:
    """The folder of the Node scripts with everything installed that its lock file names."""
    npm = shutil.which("npm")
    if npm is None or shutil.which("node") is None:
        missing("node and npm are not installed")
    descriptor = os.open(NODE_FOLDER, os.O_RDONLY)
    try:
        # Tests may run in parallel processes; the lock on the folder leaves nothing behind.
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        if _locked_versions(NODE_FOLDER / "node_modules" / ".package-lock.json") != _locked_versions(
            NODE_FOLDER / "package-lock.json"
        ):
            done = subprocess.run([npm, "ci"], cwd=NODE_FOLDER, capture_output=True, text=True, check=False)
            if done.returncode != 0:
                missing(f"npm ci failed: {(done.stderr or done.stdout).strip()[-500:]}")
    finally:
        os.close(descriptor)
    return NODE_FOLDER


def _locked_versions(lock_file: Path) -> dict[str, str]:
    if not lock_file.exists():
        return {}
    packages: dict[str, dict[str, Any]] = json.loads(lock_file.read_text(encoding="utf-8"))["packages"]
    return {name: package["version"] for name, package in packages.items() if name}


def run_node(script: str, settings: dict[str, Any]) -> Calls:
    """Run one of the Node scripts; returns the JSON document that it printed."""
    done = subprocess.run(
        ["node", script, json.dumps(settings)],
        cwd=NODE_FOLDER,
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        env=environment(),
        check=False,
    )
    assert done.returncode == 0, done.stderr
    printed: Calls = json.loads(done.stdout)
    return printed


def assert_conversation(calls: Calls) -> None:
    """Every client introduces itself, finds the sample sessions, mentions the first, and fails at an unknown one."""
    assert calls["initialize"]["protocolVersion"] == "1"
    assert calls["initialize"]["serverInfo"]["name"] == "sessionref"
    candidates = calls["candidates"]
    assert len(candidates) == 5
    assert {candidate["origin"] for candidate in candidates} == {"sample"}
    first = candidates[0]
    prepared = calls["prepare"]
    assert prepared["content"] == f"Look at @{first['displayTitle']}, please."
    context = prepared["additionalContext"]
    assert context["role"] == "user"
    assert [record["sessionId"] for record in context["source"]["references"]] == [first["sessionId"]]
    assert "\n<referenced-sessions>\n" in context["content"][0]["text"]
    assert calls["unknown"] == NOT_FOUND


def assert_cancelled_in_the_end(outcomes: Sequence[Any]) -> None:
    """A cancel may lose its race against the answer, but not each time."""
    *earlier, last = outcomes
    assert last == {"error": CANCELLED}
    assert all(outcome == {"result": True} for outcome in earlier)
