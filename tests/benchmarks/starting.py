"""From the start of a process to its first answer, against the bare imports of what it needs."""

from __future__ import annotations

import re
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

from benchmarks.figures import Measure, seconds_text
from benchmarks.peer import environment

__all__ = ("measure_starting",)

NAMED_IMPORTS: Final = (
    "argparse",
    "asyncio",
    "fcntl",
    "hashlib",
    "inspect",
    "json",
    "logging",
    "pathlib",
    "queue",
    "secrets",
    "select",
    "sqlite3",
    "unicodedata",
    "msgspec",
    "anyio.from_thread",
    "anyio.to_thread",
    "jsonrpcserver",
)
"""What the server is written with; each brings its own imports along."""

_IMPORT_LINE: Final = re.compile(r"import time:\s+\d+ \|\s+\d+ \|\s+([\w.]+)$")
_REQUEST: Final = b'{"jsonrpc":"2.0","id":1,"method":"initialize","params":{}}\n'


def measure_starting(folder: Path, quick: bool) -> Measure:
    """Spawn both processes by turns and compare their medians."""
    (folder / "sessions").mkdir()
    server = [sys.executable, "-m", "sessionref.server", "serve", "--stdio", "--store", f"dsh:{folder}"]
    # Nobody's home, so that no agent has sessions in it.
    surroundings = environment(folder / "catalogue.sqlite3", folder / "spills") | {
        "HOME": str(folder),
        "DSH_HOME": str(folder),
    }
    loaded = _loaded_modules(server, surroundings)
    named = [sys.executable, "-c", f"import {', '.join(NAMED_IMPORTS)}; print(flush=True)"]
    exact = [sys.executable, "-c", _import_all(loaded)]
    bare = [sys.executable, "-c", "print(flush=True)"]
    auto = [*server[:-1], "auto"]
    commands = {"server": server, "auto": auto, "named": named, "exact": exact, "bare": bare}
    taken: dict[str, list[float]] = {name: [] for name in commands}
    for _ in range(5 if quick else 21):
        for name, command in commands.items():
            taken[name].append(_first_line_seconds(command, surroundings))
    medians = {name: statistics.median(values) for name, values in taken.items()}
    labels = {
        "server": "server: initialize answered",
        "auto": "the same with --store auto, where there is none",
        "named": "imports it is written with",
        "exact": f"the {len(loaded)} foreign modules it has loaded",
        "bare": "python, nothing imported",
    }
    rows = [
        [labels[name], seconds_text(median), seconds_text(min(taken[name])), f"{medians['server'] / median:.2f}"]
        for name, median in medians.items()
    ]
    notes = ["target: at most 1.5 times the imports it needs", f"imports: {', '.join(NAMED_IMPORTS)}"]
    return Measure("start to first answer", ["PROCESS", "MEDIAN", "BEST", "SERVER / THIS"], rows, notes)


def _first_line_seconds(command: list[str], surroundings: dict[str, str]) -> float:
    began = time.perf_counter()
    with subprocess.Popen(
        command, env=surroundings, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(_REQUEST)
        process.stdin.flush()
        line = process.stdout.readline()
        taken = time.perf_counter() - began
    if not line:
        raise RuntimeError(f"no line from {command}")
    return taken


def _loaded_modules(server: list[str], surroundings: dict[str, str]) -> list[str]:
    """What the server has imported when it has answered and ended, in the order in which that was finished."""
    command = [server[0], "-X", "importtime", *server[1:]]
    ended = subprocess.run(command, env=surroundings, input=_REQUEST, capture_output=True, check=True)
    matches = map(_IMPORT_LINE.fullmatch, ended.stderr.decode().splitlines())
    names = dict.fromkeys(match[1] for match in matches if match)
    return [name for name in names if not name.startswith("sessionref")]


def _import_all(names: list[str]) -> str:
    """A program that imports the names; a module may have put itself under a name that cannot be imported alone."""
    return (
        "from importlib import import_module\n"
        f"for name in {names!r}:\n"
        "    try: import_module(name)\n"
        "    except ImportError: pass\n"
        "print(flush=True)"
    )
