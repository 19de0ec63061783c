"""TypeScript's compiler looks at `schemas/sessionref.d.ts`, at a host that uses it well and at one that does not."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from interop.peers import PATIENCE_SECONDS

SOURCES = Path(__file__).parent / "typescript"
DECLARATIONS = Path(__file__).parents[2] / "schemas" / "sessionref.d.ts"
STRICT = ["--noEmit", "--strict", "--exactOptionalPropertyTypes", "--noUncheckedIndexedAccess", "--pretty", "false"]


def compiled(node: Path, folder: Path, *names: str) -> list[tuple[str, int, str]]:
    """Compile files beside the declarations; the file, line and number of each error."""
    for source in (DECLARATIONS, *SOURCES.iterdir()):
        shutil.copy(source, folder)
    options = [*STRICT, "--target", "es2022", "--module", "es2022", "--moduleResolution", "bundler"]
    done = subprocess.run(
        ["node", str(node / "node_modules" / "typescript" / "bin" / "tsc"), *options, *names],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
    found = re.findall(r"^(\S+?)\((\d+),\d+\): error (TS\d+)", done.stdout, re.MULTILINE)
    assert (done.returncode == 0) == (not found), done.stdout + done.stderr
    return [(name, int(line), number) for name, line, number in found]


@pytest.mark.parametrize("name", ["sessionref.d.ts", "right.ts"])
def test_the_declarations_and_a_host_that_uses_them_compile_strictly(name: str, node: Path, tmp_path: Path) -> None:
    assert compiled(node, tmp_path, name) == []


def test_a_host_that_uses_the_declarations_wrongly_is_told_at_each_place(node: Path, tmp_path: Path) -> None:
    lines = (SOURCES / "wrong.ts").read_text(encoding="utf-8").splitlines()
    expected = [
        ("wrong.ts", number + 1, line.removeprefix("// "))
        for number, line in enumerate(lines, start=1)
        if line.startswith("// TS")
    ]
    assert compiled(node, tmp_path, "wrong.ts") == expected
