"""The rules of the house that no other tool checks: who may import whom, how long a file is, what lies at the top."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from sessionref.server.stores.registry import STORE_KINDS
from store_fixtures import KINDS as FIXTURES

TOP = Path(__file__).parents[1]
PARTS = ("protocol", "server", "client")
SOURCES = sorted(path for part in PARTS for path in (TOP / part).rglob("*.py"))
TESTS = sorted(path for path in (TOP / "tests").rglob("*.py") if "node_modules" not in path.parts)
LISTED = {
    *(".ci", ".gitignore", "LICENSE", "README.md", "pyproject.toml"),
    *("client", "protocol", "schemas", "server", "tests"),
}
MAX_LINES = 400
FORBIDDEN_IN_PROTOCOL = {
    *("asyncio", "socket", "os", "pathlib", "io", "threading", "subprocess", "select", "selectors", "ssl"),
    *("multiprocessing", "concurrent", "tempfile", "shutil", "signal", "http", "urllib"),
}
MODULES_NAMED_OTHERWISE = {"pyyaml": "yaml"}
CLI = "server/sessionref/server/cli.py"
CLI_CALLS = "server/sessionref/server/cli_calls.py"
DISPATCH = "server/sessionref/server/dispatch.py"
STORES = TOP / "server/sessionref/server/stores"
STORE_PACKAGES = sorted(path.parent.name for path in STORES.glob("*/__init__.py"))


def name_of(path: Path) -> str:
    return path.relative_to(TOP).as_posix()


def part(name: str) -> list[Path]:
    return [path for path in SOURCES if name_of(path).startswith(f"{name}/")]


def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), name_of(path))


def modules_in(node: ast.AST) -> list[str]:
    """The modules that an import statement names, `from a import b` as `a.b`, since `b` may be a module."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        assert node.level == 0, "imports are absolute"
        return [f"{node.module}.{alias.name}" for alias in node.names]
    return []


def imported_by(path: Path) -> set[str]:
    return {module for node in ast.walk(tree_of(path)) for module in modules_in(node)}


def imported_when_loaded(path: Path) -> set[str]:
    """What the module imports outside of functions."""

    def walk(node: ast.AST) -> Iterator[str]:
        yield from modules_in(node)
        for child in ast.iter_child_nodes(node):
            if not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
                yield from walk(child)

    return set(walk(tree_of(path)))


def is_within(module: str, package: str) -> bool:
    return module == package or module.startswith(f"{package}.")


def offenders(found: dict[str, set[str]]) -> dict[str, set[str]]:
    return {name: modules for name, modules in found.items() if modules}


def those_of(paths: list[Path], *packages: str) -> dict[str, set[str]]:
    """Who among the paths imports something of the packages, and what."""
    return offenders(
        {
            name_of(path): {m for m in imported_by(path) if any(is_within(m, package) for package in packages)}
            for path in paths
        }
    )


def exported_names(tree: ast.Module) -> list[str]:
    """The elements of `__all__`; empty where there is none."""
    for node in tree.body:
        target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", None)
        value = getattr(node, "value", None)
        if isinstance(target, ast.Name) and target.id == "__all__" and isinstance(value, ast.Tuple | ast.List):
            return [str(ast.literal_eval(element)) for element in value.elts]
    return []


def test_there_is_something_to_check() -> None:
    assert all(part(name) for name in PARTS)
    assert imported_by(Path(__file__)) >= {"ast", "pathlib.Path"}


def test_the_namespace_package_has_no_init_file() -> None:
    assert [name_of(path) for path in TOP.glob("*/sessionref/__init__.py")] == []
    initial = [name_of(path) for path in TESTS if path.name == "__init__.py"]
    assert [name for name in initial if not name.startswith("tests/store_fixtures/")] == []


def test_the_protocol_imports_itself_msgspec_and_the_pure_part_of_the_standard_library() -> None:
    def is_allowed(module: str) -> bool:
        root = module.partition(".")[0]
        if root in FORBIDDEN_IN_PROTOCOL:
            return False
        return root in sys.stdlib_module_names or root == "msgspec" or is_within(module, "sessionref.protocol")

    assert offenders({name_of(p): {m for m in imported_by(p) if not is_allowed(m)} for p in part("protocol")}) == {}


def test_the_client_never_imports_the_server() -> None:
    assert those_of(part("client"), "sessionref.server") == {}


def test_the_server_imports_the_client_only_in_its_command_line_and_only_when_needed() -> None:
    assert set(those_of(part("server"), "sessionref.client")) == {CLI_CALLS}
    assert not [module for module in imported_when_loaded(TOP / CLI_CALLS) if is_within(module, "sessionref.client")]


def test_jsonrpcserver_is_known_in_one_file() -> None:
    assert set(those_of(SOURCES, "jsonrpcserver", "oslash")) == {DISPATCH}


def test_the_folders_of_the_repository_are_no_packages() -> None:
    assert those_of([*SOURCES, *TESTS], *PARTS) == {}


@pytest.mark.parametrize("package", STORE_PACKAGES)
def test_a_store_knows_what_stores_share_and_no_other_store(package: str) -> None:
    shared = [f"sessionref.server.stores.{path.stem}" for path in STORES.glob("*.py") if path.stem != "registry"]
    allowed = [
        *("sessionref.protocol", "sessionref.server.printable", "sessionref.server.store"),
        *(*shared, f"sessionref.server.stores.{package}"),
        # The sample is a small home of DSH.
        *(["sessionref.server.stores.dsh"] if package == "sample" else []),
    ]
    paths = sorted((STORES / package).rglob("*.py"))
    known = those_of(paths, "sessionref")

    assert (
        offenders({name: {m for m in ms if not any(is_within(m, a) for a in allowed)} for name, ms in known.items()})
        == {}
    )


@pytest.mark.parametrize("package", [package for package in STORE_PACKAGES if package != "dsh"])
def test_looking_for_a_store_imports_next_to_nothing_of_it(package: str) -> None:
    imported = imported_when_loaded(STORES / package / "__init__.py")
    light = ("sessionref.protocol.errors", "sessionref.server.store")
    foreign = {module for module in imported if module.partition(".")[0] not in sys.stdlib_module_names}

    assert {module for module in foreign if not any(is_within(module, name) for name in light)} == set()
    assert not [m for m in imported if is_within(m, "sqlite3") or is_within(m, "json") or is_within(m, "asyncio")]


def test_every_kind_of_store_is_a_package_of_its_own_with_a_fixture_for_the_tests_of_all() -> None:
    packages = {module.rpartition(".")[2] for module in STORE_KINDS.values()}
    kinds = set(STORE_KINDS) - {"sample"}

    assert packages == set(STORE_PACKAGES)
    assert {kind.replace("-", "_") for kind in STORE_KINDS} == packages
    assert kinds == set(FIXTURES)
    assert {
        kind for kind in kinds if not sorted((TOP / "tests/server/stores").glob(f"{kind.replace('-', '_')}/test_*.py"))
    } == set()


def test_no_package_is_imported_that_the_project_does_not_depend_on() -> None:
    project = tomllib.loads((TOP / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    # The extras but those of tests and tools are for those who run it, too.
    extras = [needed for extra, needed in project["optional-dependencies"].items() if extra not in ("test", "dev")]
    needed = [requirement for requirements in (project["dependencies"], *extras) for requirement in requirements]
    packages = {re.split(r"[^A-Za-z0-9_]", requirement)[0] for requirement in needed}
    named = {MODULES_NAMED_OTHERWISE.get(package, package) for package in packages} | {"sessionref"}
    roots = {module.partition(".")[0] for path in SOURCES for module in imported_by(path)}
    # `compression.zstd` is in the standard library from Python 3.14.
    assert roots - named - sys.stdlib_module_names - {"compression"} == set()


def test_every_file_is_short_enough_to_be_read() -> None:
    lengths = {name_of(p): len(p.read_text(encoding="utf-8").splitlines()) for p in SOURCES}
    assert {name: length for name, length in lengths.items() if length >= MAX_LINES} == {}


def test_every_public_module_says_what_it_is_for_and_what_it_offers() -> None:
    lacking: dict[str, set[str]] = {}
    for path in SOURCES:
        tree = tree_of(path)
        said = {"docstring"} if ast.get_docstring(tree) else set[str]()
        offered = {"__all__"} if exported_names(tree) else set[str]()
        is_only_docstring = len(tree.body) == 1
        lacking[name_of(path)] = ({"docstring"} if is_only_docstring else {"docstring", "__all__"}) - said - offered
    public = {n: what for n, what in lacking.items() if not Path(n).name.startswith("_") or n.endswith("__init__.py")}
    assert offenders(public) == {}


@pytest.mark.parametrize("path", SOURCES, ids=name_of)
def test_what_a_module_offers_exists(path: Path) -> None:
    tree = tree_of(path)
    names = exported_names(tree)
    bound = {name.id for name in ast.walk(tree) if isinstance(name, ast.Name) and isinstance(name.ctx, ast.Store)}
    bound |= {n.name for n in tree.body if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)}
    bound |= {a.asname or a.name for n in tree.body if isinstance(n, ast.Import | ast.ImportFrom) for a in n.names}
    assert set(names) <= bound
    assert len(set(names)) == len(names)


def test_only_the_command_line_and_the_benchmarks_print() -> None:
    def prints(path: Path) -> bool:
        return any(
            isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print"
            for node in ast.walk(tree_of(path))
        )

    printing = {name_of(path) for path in [*SOURCES, *TESTS] if prints(path)}
    assert {name for name in printing if name != CLI and not name.startswith("tests/benchmarks/")} == set()


def test_the_top_level_holds_what_is_listed_and_nothing_else() -> None:
    # What is neither tracked nor ignored counts too: it is about to be committed.
    listing = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    try:
        answer = subprocess.run(listing, cwd=TOP, capture_output=True, check=True, timeout=60)
    except (OSError, subprocess.SubprocessError):
        pytest.skip("not in a git checkout")
    names = {name for name in answer.stdout.decode().split("\0") if name and (TOP / name).exists()}
    assert {name.partition("/")[0] for name in names} == LISTED
