"""A folder of Qwen Code that all its sessions are in, and that may not be read, is no folder without sessions."""

from __future__ import annotations

from pathlib import Path

import pytest

from resolver_doubles import never_cancelled
from sessionref.server.stores.folders import Folder
from store_contract import refusal_of, unlisted_of
from store_fixtures import StoreFixture, open_fixture


@pytest.fixture
def qwen(tmp_path: Path) -> StoreFixture:
    agent = open_fixture("qwen-code", tmp_path / "home")
    agent.create()
    agent.write(agent.name(1), [("user", "one")])
    return agent


def test_a_link_in_its_place_is_told_of(qwen: StoreFixture, tmp_path: Path) -> None:
    (qwen.home / "projects").rename(tmp_path / "elsewhere")
    (qwen.home / "projects").symlink_to(tmp_path / "elsewhere")

    assert unlisted_of(qwen.open()) == ["outside-root"]
    assert refusal_of(qwen.open(), qwen.session_id(qwen.name(1))) == "outside-root"


def test_one_that_is_closed_to_us_is_told_of(qwen: StoreFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    really_open = Folder.folder

    def closed(folder: Folder, name: str, *, follow_link: bool = False) -> Folder:
        if name == "projects":
            raise PermissionError(13, "closed")
        return really_open(folder, name, follow_link=follow_link)

    monkeypatch.setattr(Folder, "folder", closed)
    listing = qwen.open().list_sessions(never_cancelled)

    assert listing.sessions == []
    assert {problem.reason for problem in listing.unlisted} == {"permission"}
    assert refusal_of(qwen.open(), qwen.session_id(qwen.name(1))) == "permission"
