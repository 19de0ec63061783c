"""Stores by the names that `--store` takes."""

from __future__ import annotations

from pathlib import Path

import pytest

from dsh_fixtures import DshHome
from resolver_doubles import failure_of, never_cancelled
from sessionref.protocol.errors import ErrorCode
from sessionref.server.store import SessionStore
from sessionref.server.stores.registry import DEFAULT_STORES, STORE_KINDS, open_stores


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
