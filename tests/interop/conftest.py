"""Fixtures of the interop tests: what npm installs, and sessions that take seconds to read."""

from __future__ import annotations

from pathlib import Path

import pytest

from dsh_fixtures import DshHome, user
from interop.peers import SlowSessions, install_node_modules

TEXT = '<é"\\ ' * 20_000
MESSAGES = 400


@pytest.fixture(scope="session")
def node() -> Path:
    """The folder of the Node scripts, installed."""
    return install_node_modules()


@pytest.fixture(scope="session")
def slow(tmp_path_factory: pytest.TempPathFactory) -> SlowSessions:
    """Three sessions of 48 MB of text each, which compress to almost nothing."""
    home = DshHome(tmp_path_factory.mktemp("slow"))
    ids = ["slow-0", "slow-1", "slow-2"]
    conversation = [user(TEXT)] * MESSAGES
    for session_id in ids:
        home.write(session_id, conversation, version=4, compressed=True, lines_a_frame=20)
    return SlowSessions(home.path, ids)
