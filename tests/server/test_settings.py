"""Settings: their defaults and rules, and which source wins (contract section 5)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest

from resolver_doubles import failure_of
from sessionref.protocol.errors import ErrorCode, SessionReferenceError
from sessionref.server.settings import SETTINGS, LoadedSettings, Settings, load_settings

HOME = {"HOME": "/home/someone"}
LARGEST = 2**53 - 1

DEFAULTS: dict[str, Any] = {
    "maxReferences": 3,
    "candidateLimit": 50,
    "maxReferenceBytes": None,
    "referenceContextFraction": 0.2,
    "modelCatalogue": None,
    "spillDirectory": Path("/home/someone/.cache/sessionref/spills"),
    "cleanupPeriodDays": 30,
    "catalog": Path("/home/someone/.cache/sessionref/catalogue/catalogue.sqlite3"),
    "catalogMaxBytes": 268435456,
    "candidatesWaitMs": 1000,
    "maxMessageBytes": 33554432,
    "maxBatch": 100,
    "maxConcurrentRequests": 16,
    "maxQueuedRequests": 1024,
    "requestTimeoutSeconds": 60,
    "drainSeconds": 3,
}
INTEGERS: dict[str, tuple[int, int]] = {
    "maxReferences": (1, 3),
    "candidateLimit": (1, LARGEST),
    "maxReferenceBytes": (1, LARGEST),
    "cleanupPeriodDays": (0, LARGEST),
    "catalogMaxBytes": (0, LARGEST),
    "candidatesWaitMs": (0, LARGEST),
    "maxMessageBytes": (1024, LARGEST),
    "maxBatch": (1, LARGEST),
    "maxConcurrentRequests": (1, LARGEST),
    "maxQueuedRequests": (0, LARGEST),
}
NUMBERS = [*INTEGERS, "referenceContextFraction", "requestTimeoutSeconds", "drainSeconds"]
PATHS = ["modelCatalogue", "spillDirectory", "catalog"]

# Three values of each key, as TOML and as text, told apart by their source.
SAMPLES: dict[str, tuple[Any, Any, Any]] = {
    "maxReferences": (1, 2, 3),
    "candidateLimit": (11, 12, 13),
    "maxReferenceBytes": (2001, 2002, 2003),
    "referenceContextFraction": (0.5, 0.25, 1),
    "modelCatalogue": ("/one", "/two", "/three"),
    "spillDirectory": ("/one", "/two", "off"),
    "cleanupPeriodDays": (1, 2, 0),
    "catalog": ("/one", "/two", "off"),
    "catalogMaxBytes": (1, 2, 0),
    "candidatesWaitMs": (1, 2, 0),
    "maxMessageBytes": (1024, 2048, 4096),
    "maxBatch": (1, 2, 3),
    "maxConcurrentRequests": (1, 2, 3),
    "maxQueuedRequests": (1, 2, 0),
    "requestTimeoutSeconds": (0.5, 2.5, 7),
    "drainSeconds": (0.5, 2.5, 0),
}


def toml_of(value: Any) -> str:
    return f'"{value}"' if isinstance(value, str) else str(value)


def sample_of(value: Any) -> Any:
    """A sample as it stands in Settings."""
    if value == "off":
        return None
    return Path(value) if isinstance(value, str) else value


def variable_of(key: str) -> str:
    return "SESSIONREF_" + "".join(f"_{letter}" if letter.isupper() else letter.upper() for letter in key)


def value_of(settings: Settings, key: str) -> Any:
    field = variable_of(key).removeprefix("SESSIONREF_").lower()
    return getattr(settings, field)


Write = Callable[[str], Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Writes a configuration file."""

    def write_file(text: str) -> Path:
        path = tmp_path / "config.toml"
        path.write_text(text, encoding="utf-8")
        return path

    return write_file


@pytest.fixture(params=["file", "environment", "command line"])
def load_one(request: pytest.FixtureRequest, write: Write) -> Callable[[str, str], LoadedSettings]:
    """Loads settings with one value, as its text, from each of the sources."""

    def load(key: str, text: str) -> LoadedSettings:
        if request.param == "file":
            return load_settings(HOME, write(f"{key} = {text}"))
        if request.param == "environment":
            return load_settings({**HOME, variable_of(key): text})
        return load_settings(HOME, None, {key: text})

    return load


def refused(function: Callable[[], object]) -> SessionReferenceError:
    failure = failure_of(function)
    assert (failure.code, failure.number) == (ErrorCode.INVALID_CONFIG, -32011)
    assert failure.data == {"code": "SESSION_REFERENCE_INVALID_CONFIG"}
    assert len(failure.message.splitlines()) == 1
    return failure


def test_the_keys_are_those_of_the_contract() -> None:
    assert set(SETTINGS) == set(DEFAULTS)
    assert {field.encode_name for field in msgspec.structs.fields(Settings)} == set(DEFAULTS)


@pytest.mark.parametrize("key", DEFAULTS)
def test_every_key_has_its_default_and_says_so(key: str) -> None:
    loaded = load_settings(HOME)

    assert value_of(loaded.settings, key) == DEFAULTS[key]
    assert loaded.origins[key] == "default"
    assert loaded.warnings == []


@pytest.mark.parametrize("key", DEFAULTS)
def test_every_key_is_taken_from_the_file_the_environment_and_the_command_line_the_later_one_winning(
    key: str, write: Write
) -> None:
    in_file, in_environment, in_options = SAMPLES[key]
    config = write(f"{key} = {toml_of(in_file)}")
    environment = {**HOME, variable_of(key): str(in_environment)}

    from_file = load_settings(HOME, config)
    from_environment = load_settings(environment, config)
    from_options = load_settings(environment, config, {key: str(in_options)})

    assert value_of(from_file.settings, key) == sample_of(in_file)
    assert from_file.origins[key] == "file"
    assert value_of(from_environment.settings, key) == sample_of(in_environment)
    assert variable_of(key) in from_environment.origins[key]
    assert value_of(from_options.settings, key) == sample_of(in_options)
    assert SETTINGS[key].option in from_options.origins[key]
    for loaded in (from_file, from_environment, from_options):
        assert {other for other, origin in loaded.origins.items() if origin != "default"} == {key}


@pytest.mark.parametrize(
    ("key", "variable", "option"),
    [
        ("maxReferences", "SESSIONREF_MAX_REFERENCES", "--max-references"),
        ("referenceContextFraction", "SESSIONREF_REFERENCE_CONTEXT_FRACTION", "--reference-context-fraction"),
        ("drainSeconds", "SESSIONREF_DRAIN_SECONDS", "--drain-seconds"),
    ],
)
def test_variables_and_options_are_named_after_their_key(key: str, variable: str, option: str) -> None:
    assert (SETTINGS[key].variable, SETTINGS[key].option) == (variable, option)


def test_each_source_wins_only_for_the_keys_that_it_has(write: Write) -> None:
    config = write("maxBatch = 7\ncandidateLimit = 7\nmaxReferences = 1")
    loaded = load_settings(
        {**HOME, "SESSIONREF_CANDIDATE_LIMIT": "8", "SESSIONREF_MAX_REFERENCES": "2"}, config, {"maxReferences": "3"}
    )

    settings = loaded.settings
    assert (settings.max_batch, settings.candidate_limit, settings.max_references) == (7, 8, 3)


@pytest.mark.parametrize("key", INTEGERS)
def test_an_integer_may_be_written_with_a_fraction_of_zero_and_has_its_bounds(
    key: str, load_one: Callable[[str, str], LoadedSettings]
) -> None:
    lowest, highest = INTEGERS[key]
    for text, expected in (
        (f"{lowest}.0", lowest),
        (str(lowest), lowest),
        (f"{highest}.0", highest),
        (str(highest), highest),
    ):
        value = value_of(load_one(key, text).settings, key)
        assert value == expected
        assert type(value) is int
    for text in (str(lowest - 1), str(highest + 1), f"{lowest}.5", "-1", "-3.0"):
        assert key in refused(partial(load_one, key, text)).message


@pytest.mark.parametrize(
    "text", ["true", "false", "nan", "inf", "-inf", "9007199254740992", "9007199254740992.0", "1e300"]
)
@pytest.mark.parametrize("key", INTEGERS)
def test_what_is_no_safe_integer_is_invalid(
    key: str, text: str, load_one: Callable[[str, str], LoadedSettings]
) -> None:
    refused(lambda: load_one(key, text))


@pytest.mark.parametrize("text", ["true", "false", "nan", "+nan", "inf", "-inf", "-0.1"])
@pytest.mark.parametrize("key", ["referenceContextFraction", "requestTimeoutSeconds", "drainSeconds"])
def test_what_is_no_finite_number_is_invalid(
    key: str, text: str, load_one: Callable[[str, str], LoadedSettings]
) -> None:
    refused(lambda: load_one(key, text))


@pytest.mark.parametrize("text", ["[]", "[3]", "{}", "1979-05-27"])
@pytest.mark.parametrize("key", DEFAULTS)
def test_a_value_of_another_type_is_invalid_in_the_file(key: str, text: str, write: Write) -> None:
    assert key in refused(lambda: load_settings(HOME, write(f"{key} = {text}"))).message


@pytest.mark.parametrize("key", NUMBERS)
def test_a_number_written_as_a_string_is_invalid_in_the_file(key: str, write: Write) -> None:
    refused(lambda: load_settings(HOME, write(f'{key} = "{SAMPLES[key][0]}"')))


@pytest.mark.parametrize("key", NUMBERS)
def test_an_integer_that_no_double_can_hold_is_invalid(key: str, write: Write) -> None:
    assert key in refused(lambda: load_settings(HOME, write(f"{key} = 1{'0' * 400}"))).message


@pytest.mark.parametrize(
    "text", ["", " ", "three", "0x10", "1_000", "1,5", "3.", ".5", "٣", "3 3", "1e", "--3", "true"]
)
@pytest.mark.parametrize("key", NUMBERS)
def test_a_text_that_is_no_number_is_invalid_in_the_environment(key: str, text: str) -> None:
    refused(lambda: load_settings({**HOME, variable_of(key): text}))


@pytest.mark.parametrize(
    ("key", "valid", "invalid"),
    [
        ("referenceContextFraction", ["0", "1", "0.0", "1.0", "0.7"], ["1.0001", "2", "-0.0001"]),
        ("requestTimeoutSeconds", ["0.001", "1", "86400"], ["0", "0.0", "-0.0", "-1"]),
        ("drainSeconds", ["0", "0.0", "2.5"], ["-0.001"]),
    ],
)
def test_a_number_has_its_bounds(
    key: str, valid: list[str], invalid: list[str], load_one: Callable[[str, str], LoadedSettings]
) -> None:
    for text in valid:
        assert value_of(load_one(key, text).settings, key) == float(text)
    for text in invalid:
        refused(partial(load_one, key, text))


def test_an_empty_path_is_invalid_wherever_it_stands(write: Write) -> None:
    for key in PATHS:
        for text in ("", "  "):
            refused(partial(load_settings, HOME, write(f'{key} = "{text}"')))
            refused(partial(load_settings, {**HOME, variable_of(key): text}))
        refused(partial(load_settings, HOME, write(f'{key} = "a\\u0000b"')))
        refused(partial(load_settings, HOME, write(f"{key} = 5")))


@pytest.mark.parametrize("key", ["spillDirectory", "catalog"])
def test_off_turns_a_directory_off_in_every_source(key: str, write: Write) -> None:
    for loaded in (
        load_settings(HOME, write(f'{key} = "off"')),
        load_settings({**HOME, variable_of(key): "off"}),
        load_settings(HOME, None, {key: "off"}),
    ):
        assert value_of(loaded.settings, key) is None
        assert loaded.origins[key] != "default"


def test_off_is_the_name_of_a_file_where_it_means_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    assert load_settings({**HOME, "SESSIONREF_MODEL_CATALOGUE": "off"}).settings.model_catalogue == tmp_path / "off"


@pytest.mark.parametrize("key", PATHS)
def test_a_tilde_is_the_users_home_and_a_relative_path_is_made_absolute(
    key: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, write: Write
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)

    for text, expected in (("~/x", "home/x"), ("sub/../x", "x"), ("a b", "a b")):
        for loaded in (
            load_settings(HOME, write(f'{key} = "{text}"')),
            load_settings({**HOME, variable_of(key): text}),
            load_settings(HOME, None, {key: text}),
        ):
            assert value_of(loaded.settings, key) == tmp_path / expected


@pytest.mark.parametrize(
    ("platform", "environment", "expected"),
    [
        ("linux", {"HOME": "/home/u"}, "/home/u/.cache"),
        ("linux", {"HOME": "/home/u", "XDG_CACHE_HOME": "/fast"}, "/fast"),
        ("linux", {"HOME": "/home/u", "XDG_CACHE_HOME": "relative"}, "/home/u/.cache"),
        ("linux", {"HOME": "/home/u", "XDG_CACHE_HOME": ""}, "/home/u/.cache"),
        ("darwin", {"HOME": "/Users/u"}, "/Users/u/Library/Caches"),
        ("win32", {"HOME": "/u"}, "/u/AppData/Local"),
        ("win32", {"HOME": "/u", "LOCALAPPDATA": "/local"}, "/local"),
    ],
)
def test_what_is_kept_is_kept_in_the_users_cache(
    monkeypatch: pytest.MonkeyPatch, platform: str, environment: dict[str, str], expected: str
) -> None:
    monkeypatch.setattr("sys.platform", platform)
    settings = load_settings(environment).settings

    assert settings.spill_directory == Path(expected) / "sessionref" / "spills"
    assert settings.catalog is not None
    assert settings.catalog.is_relative_to(Path(expected) / "sessionref")


@pytest.mark.parametrize("key", DEFAULTS)
def test_a_refusal_names_key_source_and_rule_and_not_the_value(key: str, write: Write) -> None:
    secret = "-98765"
    loads: list[tuple[str, Callable[[], object]]] = [
        ("file", lambda: load_settings(HOME, write(f"{key} = {secret}"))),
        (variable_of(key), lambda: load_settings({**HOME, variable_of(key): "\0" + secret})),
        (SETTINGS[key].option, lambda: load_settings(HOME, None, {key: "\0" + secret})),
    ]
    for source, load in loads:
        message = refused(load).message
        assert key in message
        assert source in message
        assert SETTINGS[key].rule in message
        assert "98765" not in message


@pytest.mark.parametrize(
    ("written", "suggested"),
    [
        ("maxReference", "maxReferences"),
        ("max_references", "maxReferences"),
        ("candidatelimit", "candidateLimit"),
        ("modelCatalog", "modelCatalogue"),
    ],
)
def test_an_unknown_key_in_the_file_is_invalid_and_the_nearest_one_is_suggested(
    written: str, suggested: str, write: Write
) -> None:
    message = refused(lambda: load_settings(HOME, write(f"{written} = 1"))).message

    assert written in message
    assert f"did you mean {suggested}?" in message


@pytest.mark.parametrize("written", ["zzz", '"\\n\\u001b[31m"', '"<script>"', "[sessionref]\nmaxBatch", '""'])
def test_an_unknown_key_with_nothing_near_is_invalid_and_shown_only_if_it_is_a_name(written: str, write: Write) -> None:
    message = refused(lambda: load_settings(HOME, write(f"{written} = 1"))).message

    assert "did you mean" not in message
    assert "\x1b" not in message
    assert "<" not in message


@pytest.mark.parametrize("variable", ["SESSIONREF_MAX_REFERENCE", "SESSIONREF_maxReferences", "SESSIONREF_"])
def test_an_unknown_variable_of_ours_only_warns(variable: str) -> None:
    loaded = load_settings({**HOME, variable: "secret", "OTHER_MAX_REFERENCES": "x", "sessionref_max_batch": "x"})

    (warning,) = loaded.warnings
    assert variable in warning
    assert "secret" not in warning
    assert loaded.settings == load_settings(HOME).settings


def test_a_variable_whose_name_is_not_printable_is_not_shown() -> None:
    (warning,) = load_settings({**HOME, "SESSIONREF_\x1b[31m\n": "x"}).warnings

    assert "\x1b" not in warning
    assert "\n" not in warning


def folder(path: Path) -> None:
    path.mkdir()


def nothing(path: Path) -> None:
    """Leave the place empty."""


def content(written: bytes) -> Callable[[Path], None]:
    def put(path: Path) -> None:
        path.write_bytes(written)

    return put


@pytest.mark.parametrize(
    "put",
    [
        nothing,
        folder,
        content(b"maxBatch = "),
        content(b"maxBatch = 1\nmaxBatch = 2"),
        content(b"\xff\xfe"),
        content(b"x = " + b"[" * 100_000),
        content(b"# " + b"x" * 1_048_576),
        content(b"maxBatch = " + b"1" * 5000),
    ],
    ids=["missing", "folder", "syntax", "twice", "no utf-8", "nested", "too large", "endless digits"],
)
def test_a_file_that_is_no_readable_toml_is_invalid_and_its_path_is_not_shown(
    put: Callable[[Path], None], tmp_path: Path
) -> None:
    path = tmp_path / "secret.toml"
    put(path)

    message = refused(lambda: load_settings(HOME, path)).message
    assert "--config" in message
    assert "secret" not in message
    assert str(tmp_path) not in message


def test_an_empty_file_changes_nothing(write: Write) -> None:
    assert load_settings(HOME, write("")) == load_settings(HOME)


def test_the_limits_of_a_connection_follow_the_settings() -> None:
    keys = {
        "maxMessageBytes": "2048",
        "maxBatch": "5",
        "maxConcurrentRequests": "6",
        "maxQueuedRequests": "7",
        "requestTimeoutSeconds": "8.5",
        "drainSeconds": "9.5",
    }
    limits = load_settings(HOME, None, keys).settings.limits

    assert (limits.max_message_bytes, limits.max_batch) == (2048, 5)
    assert (limits.max_concurrent_requests, limits.max_queued_requests) == (6, 7)
    assert (limits.request_timeout_seconds, limits.drain_seconds) == (8.5, 9.5)
