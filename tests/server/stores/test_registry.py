"""Stores by the names that `--store` takes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from dsh_fixtures import DshHome
from resolver_doubles import failure_of, never_cancelled
from sessionref.protocol.errors import ErrorCode
from sessionref.server.store import SessionStore
from sessionref.server.stores.registry import AUTO, DEFAULT_STORES, SAMPLE, STORE_KINDS, open_stores
from store_contract import TALK
from store_fixtures import KINDS, open_fixture


def ids(store: SessionStore) -> list[str]:
    return [header.session_id for header in store.list_sessions(never_cancelled).sessions]


def test_without_a_name_the_store_is_the_home_that_the_environment_tells(tmp_path: Path) -> None:
    DshHome(tmp_path).write("at-home")

    (store,) = open_stores([], {"DSH_HOME": str(tmp_path)})

    assert (store.kind, ids(store)) == ("dsh", ["at-home"])
    assert DEFAULT_STORES == ("dsh",)


def test_a_path_after_the_colon_names_another_home_in_spite_of_the_environment(tmp_path: Path) -> None:
    DshHome(tmp_path / "one").write("in-one")
    DshHome(tmp_path / "two").write("in-two")

    stores = open_stores([f"dsh:{tmp_path / 'two'}"], {"DSH_HOME": str(tmp_path / "one")})

    assert [ids(store) for store in stores] == [["in-two"]]


def test_a_path_may_hold_a_colon(tmp_path: Path) -> None:
    DshHome(tmp_path / "a:b").write("behind-a-colon")

    (store,) = open_stores([f"dsh:{tmp_path}/a:b"], {})

    assert ids(store) == ["behind-a-colon"]


def test_a_tilde_in_a_path_is_the_home_of_the_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    DshHome(tmp_path / "agent").write("at-the-tilde")

    (store,) = open_stores(["dsh:~/agent"], {})

    assert ids(store) == ["at-the-tilde"]


def test_a_relative_path_means_the_directory_at_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    DshHome(tmp_path / "here").write("relative")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)

    (store,) = open_stores(["dsh:here"], {})
    monkeypatch.chdir(tmp_path / "elsewhere")

    assert ids(store) == ["relative"]


def test_stores_are_opened_in_the_order_in_which_they_are_named(tmp_path: Path) -> None:
    for name in ("b", "a"):
        DshHome(tmp_path / name).write(f"in-{name}")

    stores = open_stores([f"dsh:{tmp_path / 'b'}", "sample", f"dsh:{tmp_path / 'a'}"], {})

    assert [store.kind for store in stores] == ["dsh", "sample", "dsh"]
    assert (ids(stores[0]), ids(stores[2])) == (["in-b"], ["in-a"])


def test_opening_a_store_reads_nothing_yet(tmp_path: Path) -> None:
    (store,) = open_stores([f"dsh:{tmp_path / 'later'}"], {})
    DshHome(tmp_path / "later").write("written-later")

    assert ids(store) == ["written-later"]


@pytest.mark.parametrize("name", ["", "nothing", "DSH", ":/path", "dsh/x", "dsh "])
def test_an_unknown_kind_is_an_invalid_configuration_that_names_the_kinds_and_not_what_was_given(name: str) -> None:
    failure = failure_of(lambda: open_stores(["sample", name], {}))

    assert (failure.code, failure.number) == (ErrorCode.INVALID_CONFIG, -32011)
    assert all(kind in failure.message for kind in STORE_KINDS)
    assert "--store" in failure.message
    assert "nothing" not in failure.message


@pytest.mark.parametrize(
    ("name", "said"),
    [("dsh:", "path of a store"), ("sample:", "path of a store"), ("sample:/secret", "without a path")],
)
def test_an_empty_path_and_a_path_for_the_sample_are_an_invalid_configuration(name: str, said: str) -> None:
    failure = failure_of(lambda: open_stores([name], {}))

    assert failure.code is ErrorCode.INVALID_CONFIG
    assert said in failure.message
    assert "/secret" not in failure.message


@pytest.fixture
def nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The home directory of somebody who has used no agent yet, with an environment that names none."""
    home = tmp_path / "nobody"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("USERPROFILE", str(home))
    return home


def places(stores: list[SessionStore]) -> list[tuple[str, list[str]]]:
    """The kind of each store with the ids that it lists."""
    return [(store.kind, ids(store)) for store in stores]


def test_auto_is_every_store_that_there_is_dsh_first_and_the_sample_never(nobody: Path) -> None:
    assert next(iter(STORE_KINDS)) == "dsh"
    DshHome(nobody / ".dsh").write("of-dsh")
    pi = open_fixture("pi", nobody / ".pi" / "agent")
    pi.create()
    pi.write(pi.name(1), TALK)

    assert places(open_stores([AUTO], {})) == [("dsh", ["of-dsh"]), ("pi", [pi.session_id(pi.name(1))])]


def test_auto_takes_every_home_of_a_kind_that_there_is(nobody: Path) -> None:
    for number, folder in ((1, ".pi"), (2, ".omp")):
        pi = open_fixture("pi", nobody / folder / "agent")
        pi.create()
        pi.write(pi.name(number), TALK)

    assert places(open_stores([AUTO], {})) == [("pi", [pi.session_id(pi.name(number))]) for number in (1, 2)]


def test_auto_where_there_is_none_is_the_store_of_dsh_so_that_somebody_says_so(nobody: Path) -> None:
    assert places(open_stores([AUTO], {})) == [("dsh", [])]


def test_auto_follows_the_environment(nobody: Path, tmp_path: Path) -> None:
    DshHome(nobody / ".dsh").write("at-home")
    DshHome(tmp_path / "named").write("named")

    assert places(open_stores([AUTO], {"DSH_HOME": str(tmp_path / "named")})) == [("dsh", ["named"])]
    assert places(open_stores([AUTO], {"DSH_HOME": str(tmp_path / "missing")})) == [("dsh", [])]


def test_auto_and_named_stores_stand_in_the_order_given(nobody: Path, tmp_path: Path) -> None:
    DshHome(nobody / ".dsh").write("at-home")
    DshHome(tmp_path / "other").write("other")

    assert places(open_stores([f"dsh:{tmp_path / 'other'}", AUTO], {})) == [("dsh", ["other"]), ("dsh", ["at-home"])]
    assert [store.kind for store in open_stores([AUTO, SAMPLE], {})] == ["dsh", "sample"]


def test_a_named_kind_takes_the_first_home_that_is_there_or_the_most_important(nobody: Path) -> None:
    pi = open_fixture("pi", nobody / ".omp" / "agent")
    pi.create()
    pi.write(pi.name(1), TALK)
    assert places(open_stores(["pi"], {})) == [("pi", [pi.session_id(pi.name(1))])]

    first = open_fixture("pi", nobody / ".pi" / "agent")
    first.create()
    assert places(open_stores(["pi"], {})) == [("pi", [])]


@pytest.mark.parametrize("kind", sorted(set(KINDS) & set(STORE_KINDS)))
def test_every_kind_can_be_opened_by_its_name_and_path(kind: str, nobody: Path, tmp_path: Path) -> None:
    agent = open_fixture(kind, tmp_path / "home")
    agent.create()
    agent.write(agent.name(1), TALK)

    assert places(open_stores([f"{kind}:{agent.home}"], {})) == [(kind, [agent.session_id(agent.name(1))])]
    assert places(open_stores([kind], {})) == [(kind, [])]


def test_auto_imports_nothing_of_a_store_that_is_not_there_but_where_it_would_be(tmp_path: Path) -> None:
    script = (
        "import json, sys; from sessionref.server.stores.registry import open_stores;"
        "print(json.dumps([[store.kind for store in open_stores(['auto'], {})], sorted(sys.modules)]))"
    )
    surroundings = {"HOME": str(tmp_path), "USERPROFILE": str(tmp_path)}
    ran = subprocess.run([sys.executable, "-c", script], env=surroundings, capture_output=True, check=True, timeout=60)
    kinds, modules = json.loads(ran.stdout)
    packages = {kind: package for kind, package in STORE_KINDS.items() if kind != SAMPLE}

    assert kinds == ["dsh"]
    assert set(packages.values()) <= set(modules)
    assert STORE_KINDS[SAMPLE] not in modules
    loaded = {kind for kind, package in packages.items() if any(name.startswith(f"{package}.") for name in modules)}
    assert loaded == {"dsh"}
    assert not {"sqlite3", "yaml"} & set(modules)


@pytest.mark.parametrize("name", ["dsh:~nobody-at-all/x", "pi:~nobody-at-all"])
def test_a_path_in_the_home_of_nobody_is_an_invalid_configuration(name: str) -> None:
    failure = failure_of(lambda: open_stores([name], {}))

    assert failure.code is ErrorCode.INVALID_CONFIG
    assert "nobody-at-all" not in failure.message


def test_a_variable_that_names_the_home_of_nobody_costs_auto_that_kind_alone(nobody: Path) -> None:
    DshHome(nobody / ".dsh").write("at-home")
    environment = {"PI_CODING_AGENT_DIR": "~nobody-at-all/x"}

    assert places(open_stores([AUTO], environment)) == [("dsh", ["at-home"])]
    assert failure_of(lambda: open_stores(["pi"], environment)).code is ErrorCode.INVALID_CONFIG
