"""Budgets: windows of models, routes of agents, and the catalogue (contract section 4, Budget)."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from resolver_doubles import failure_of
from sessionref.protocol.errors import ErrorCode, ReadFailedReason
from sessionref.protocol.methods import Route
from sessionref.server.budget import DEFAULT_BUDGET_BYTES, ModelCatalogue, RouteMemory, budget_bytes


@pytest.mark.parametrize(
    ("window", "fraction", "budget"),
    [
        (None, 0.2, 65_536),
        (None, 1, 65_536),
        (1, 1, 65_536),
        (16_384, 1, 65_536),
        (16_385, 1, 65_540),
        (500_000, 0.2, 400_000),
        (81_921, 0.2, 65_536),
        (81_922, 0.2, 65_537),
        (300_001, 0.1, 120_000),
        (100_000_000, 1, 400_000_000),
        (100_000_000, 0, 65_536),
        (1_000_003, 0.7, 2_800_008),
    ],
)
def test_a_window_in_tokens_gives_its_fraction_in_bytes_but_never_less_than_the_default(
    window: int | None, fraction: float, budget: int
) -> None:
    found = budget_bytes(window, fraction)

    assert found == budget
    assert type(found) is int


def test_the_default_is_64_kibibytes() -> None:
    assert DEFAULT_BUDGET_BYTES == 65_536


def test_an_agent_without_an_assembled_prompt_has_no_route() -> None:
    routes = RouteMemory()
    routes.remember("other", Route("p", "m", 1))

    assert routes.route_of("agent") is None


def test_the_last_route_of_an_agent_counts_also_when_it_is_empty() -> None:
    routes = RouteMemory()
    routes.remember("agent", Route("p", "m", 5))
    routes.remember("agent", Route())

    assert routes.route_of("agent") == Route()


def test_1024_agents_are_remembered_and_the_least_recently_assembled_is_forgotten() -> None:
    routes = RouteMemory()
    for number in range(1024):
        routes.remember(f"agent {number}", Route(context_window=number + 1))
    assert routes.route_of("agent 0") == Route(context_window=1)
    routes.remember("agent 0", Route(context_window=9))
    routes.remember("one more", Route(context_window=7))

    assert routes.route_of("agent 1") is None
    assert routes.route_of("agent 0") == Route(context_window=9)
    assert routes.route_of("one more") == Route(context_window=7)
    assert sum(routes.route_of(f"agent {number}") is not None for number in range(1024)) == 1023


def test_asking_for_a_route_does_not_keep_it_longer() -> None:
    routes = RouteMemory()
    for number in range(1024):
        routes.remember(f"agent {number}", Route())
    assert routes.route_of("agent 0") is not None
    routes.remember("one more", Route())

    assert routes.route_of("agent 0") is None


CATALOGUE = """
note = "other members are no fault"

[[models]]
provider = "acme"
model = "large"
contextWindow = 500_000
price = 3

[[models]]
provider = "acme"
model = "unknown window"

[[models]]
provider = "other"
model = "large"
contextWindow = 100_000_000
"""


def catalogue(path: Path, text: str | bytes = CATALOGUE) -> ModelCatalogue:
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return ModelCatalogue(path)


@pytest.mark.parametrize(
    ("provider", "model", "window"),
    [
        ("acme", "large", 500_000),
        ("other", "large", 100_000_000),
        ("acme", "unknown window", None),
        ("acme", "unknown", None),
        ("unknown", "large", None),
        ("ACME", "large", None),
        ("", "", None),
    ],
)
def test_the_catalogue_knows_windows_by_provider_and_model(
    tmp_path: Path, provider: str, model: str, window: int | None
) -> None:
    assert catalogue(tmp_path / "models.toml").context_window(provider, model) == window


@pytest.mark.parametrize("text", ["", "models = []", 'title = "nothing else"'])
def test_a_catalogue_without_models_knows_none(tmp_path: Path, text: str) -> None:
    assert catalogue(tmp_path / "models.toml", text).context_window("acme", "large") is None


def test_without_a_catalogue_no_model_is_known() -> None:
    none = ModelCatalogue(None)

    assert not none.is_configured
    assert none.context_window("acme", "large") is None


def test_the_catalogue_is_read_when_it_is_first_needed_and_once(tmp_path: Path) -> None:
    path = tmp_path / "models.toml"
    models = ModelCatalogue(path)
    assert models.is_configured
    path.write_text(CATALOGUE)
    assert models.context_window("acme", "large") == 500_000
    path.unlink()

    assert models.context_window("other", "large") == 100_000_000


def test_a_catalogue_that_could_not_be_read_is_tried_again(tmp_path: Path) -> None:
    path = tmp_path / "models.toml"
    models = ModelCatalogue(path)
    assert failure_of(lambda: models.context_window("acme", "large")).reason is ReadFailedReason.MODEL_LOOKUP
    path.write_text(CATALOGUE)

    assert models.context_window("acme", "large") == 500_000


def nothing(path: Path) -> None:
    """Leave the place empty."""


def folder(path: Path) -> None:
    path.mkdir()


def broken_link(path: Path) -> None:
    path.symlink_to("nowhere")


def row(members: str) -> Callable[[Path], None]:
    return content(f'[[models]]\nprovider = "acme"\nmodel = "large"\n{members}'.encode())


def content(written: bytes) -> Callable[[Path], None]:
    def put(path: Path) -> None:
        path.write_bytes(written)

    return put


@pytest.mark.parametrize(
    "put",
    [
        nothing,
        folder,
        broken_link,
        os.mkfifo,
        content(b"models = "),
        content(b"\xff"),
        content(b"models = 5"),
        content(b"[models]\nprovider = 'acme'"),
        content(b"models = [5]"),
        content(b"[[models]]\nprovider = 'acme'"),
        content(b"[[models]]\nprovider = 5\nmodel = 'large'"),
        content(b"x = " + b"[" * 100_000),
        content(b"#" * (16_777_216 + 1)),
        row("contextWindow = 0"),
        row("contextWindow = -1"),
        row("contextWindow = 100_000_001"),
        row("contextWindow = 0.5"),
        row("contextWindow = true"),
        row("contextWindow = nan"),
        row("contextWindow = '200000'"),
        row("contextWindow = " + "9" * 400),
    ],
)
def test_a_catalogue_that_cannot_be_read_fails_the_lookup_and_does_not_hang(
    tmp_path: Path, put: Callable[[Path], None]
) -> None:
    path = tmp_path / "secret.toml"
    put(path)
    failure = failure_of(lambda: ModelCatalogue(path).context_window("acme", "large"))

    assert (failure.code, failure.number) == (ErrorCode.READ_FAILED, -32015)
    assert failure.data == {"code": "SESSION_REFERENCE_READ_FAILED", "reason": "model-lookup"}
    assert "secret" not in failure.message


def test_a_lookup_that_fails_keeps_no_file_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[int] = []
    real_open = os.open

    def watched_open(path: Path, flags: int) -> int:
        opened.append(real_open(path, flags))
        return opened[-1]

    monkeypatch.setattr(os, "open", watched_open)
    failure = failure_of(lambda: ModelCatalogue(tmp_path).context_window("acme", "large"))
    monkeypatch.undo()

    assert failure.reason is ReadFailedReason.MODEL_LOOKUP
    assert len(opened) == 1
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(opened[0])


def test_a_window_may_be_written_with_a_fraction_of_zero(tmp_path: Path) -> None:
    put = row("contextWindow = 200000.0")
    put(tmp_path / "models.toml")

    assert ModelCatalogue(tmp_path / "models.toml").context_window("acme", "large") == 200_000


def test_what_is_remembered_of_an_agent_is_bounded() -> None:
    memory = RouteMemory()
    long = "x" * 1_000_000
    memory.remember(long, Route(provider=long, model=long, context_window=5))

    assert memory.route_of(long) == Route(context_window=5)
    assert memory.route_of(long + "y") is None
    assert len(msgspec.json.encode(vars(memory)["_routes"])) < 1000
