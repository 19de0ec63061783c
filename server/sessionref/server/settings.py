"""Settings: defaults, a TOML file, the environment and the command line, and which of them set what (section 5)."""

from __future__ import annotations

import math
import os
import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from sessionref.protocol.errors import invalid_config
from sessionref.protocol.limits import Limits

__all__ = ("SETTINGS", "LoadedSettings", "SettingSpecification", "Settings", "cache_folder", "load_settings")

MAX_SAFE_INTEGER: Final = 2**53 - 1
ENVIRONMENT_PREFIX: Final = "SESSIONREF_"
MAX_CONFIG_BYTES: Final = 1_048_576
"""A settings file has a dozen lines; what is larger is some other file."""

_NUMBER: Final = re.compile(r"[+-]?[0-9]{1,20}(\.[0-9]{1,20})?([eE][+-]?[0-9]{1,3})?")
_DEFAULT_LIMITS: Final = Limits()


class Settings(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What is in force; the keys and rules of contract section 5."""

    max_references: int = 3
    candidate_limit: int = 50
    max_reference_bytes: int | None = None
    reference_context_fraction: float = 0.2
    model_catalogue: Path | None = None
    spill_directory: Path | None = None
    cleanup_period_days: int = 30
    catalog: Path | None = None
    catalog_max_bytes: int = 268_435_456
    candidates_wait_ms: int = 1000
    max_message_bytes: int = _DEFAULT_LIMITS.max_message_bytes
    max_batch: int = _DEFAULT_LIMITS.max_batch
    max_concurrent_requests: int = _DEFAULT_LIMITS.max_concurrent_requests
    max_queued_requests: int = _DEFAULT_LIMITS.max_queued_requests
    request_timeout_seconds: float = _DEFAULT_LIMITS.request_timeout_seconds
    drain_seconds: float = _DEFAULT_LIMITS.drain_seconds

    @property
    def limits(self) -> Limits:
        """The limits of one connection under these settings."""
        return Limits(
            max_message_bytes=self.max_message_bytes,
            max_batch=self.max_batch,
            max_concurrent_requests=self.max_concurrent_requests,
            max_queued_requests=self.max_queued_requests,
            request_timeout_seconds=self.request_timeout_seconds,
            drain_seconds=self.drain_seconds,
        )


class SettingSpecification(msgspec.Struct, frozen=True):
    """One setting: its key, what a value must be, in words, and the conversion that enforces it."""

    key: str
    rule: str
    convert: Callable[[Any], Any]
    """Returns the value, or raises ValueError."""

    is_number: bool = True
    """Whether a text of the environment or the command line has to be read as a number first."""

    @property
    def field(self) -> str:
        """The key in snake case: the field of Settings."""
        return re.sub("([A-Z])", r"_\1", self.key).lower()

    @property
    def variable(self) -> str:
        """The environment variable that sets it."""
        return ENVIRONMENT_PREFIX + self.field.upper()

    @property
    def option(self) -> str:
        """The command line option that sets it."""
        return "--" + self.field.replace("_", "-")


class LoadedSettings(msgspec.Struct, frozen=True):
    """Settings in force, where each value came from by key, and what a person should be told."""

    settings: Settings
    origins: dict[str, str]
    warnings: list[str]


def load_settings(
    environment: Mapping[str, str], config: Path | None = None, options: Mapping[str, str] | None = None
) -> LoadedSettings:
    """Put the sources together, the later ones winning: defaults, file, environment, command line.

    `options` holds command line values by key. Raises SessionReferenceError INVALID_CONFIG.
    """
    cache = cache_folder(environment)
    values: dict[str, Any] = {
        "spill_directory": cache / "spills",
        "catalog": cache / "catalogue" / "catalogue.sqlite3",
    }
    origins = dict.fromkeys(SETTINGS, "default")
    warnings: list[str] = []

    def take(key: str, given: Any, origin: str, *, is_text: bool = True) -> None:
        specification = SETTINGS[key]
        try:
            value = _number_in(given) if is_text and specification.is_number else given
            values[specification.field] = specification.convert(value)
        except ValueError:
            raise invalid_config(key, specification.rule, origin) from None
        origins[key] = origin

    if config is not None:
        for key, given in _read_config(config).items():
            if key not in SETTINGS:
                raise invalid_config(_shown(key), "removed: no such setting" + _suggestion(key), "file")
            take(key, given, "file", is_text=False)
    variables = {specification.variable: key for key, specification in SETTINGS.items()}
    for variable, given in sorted(environment.items()):
        if variable in variables:
            take(variables[variable], given, f"environment variable {variable}")
        elif variable.startswith(ENVIRONMENT_PREFIX):
            warnings.append(f"unknown environment variable {_shown(variable)} is ignored")
    for key, given in (options or {}).items():
        take(key, given, f"command line option {SETTINGS[key].option}")
    return LoadedSettings(Settings(**values), origins, warnings)


def cache_folder(environment: Mapping[str, str]) -> Path:
    """`sessionref` in the user's cache folder, by the platform's convention."""
    home = Path(environment.get("HOME") or Path.home())
    if sys.platform == "darwin":
        cache = home / "Library" / "Caches"
    elif sys.platform == "win32":
        cache = Path(environment.get("LOCALAPPDATA") or home / "AppData" / "Local")
    else:
        configured = environment.get("XDG_CACHE_HOME", "")
        cache = Path(configured) if configured.startswith("/") else home / ".cache"
    return cache / "sessionref"


def _read_config(config: Path) -> dict[str, Any]:
    import tomllib

    try:
        with config.open("rb") as file:
            content = file.read(MAX_CONFIG_BYTES + 1)
        if len(content) > MAX_CONFIG_BYTES:
            raise ValueError
        return tomllib.loads(content.decode())
    except (OSError, ValueError, RecursionError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error) or "too large"
        rule = f"a readable TOML file: {reason}"
        raise invalid_config("the configuration file", rule, "command line option --config") from None


def _number_in(text: str) -> float | int:
    """The number that a text of the environment or the command line is. Raises ValueError."""
    text = text.strip()
    if not _NUMBER.fullmatch(text):
        raise ValueError(text)
    return int(text) if text.lstrip("+-").isdigit() else float(text)


def _number(given: Any) -> float | int:
    if isinstance(given, bool) or not isinstance(given, int | float):
        raise ValueError(given)
    if isinstance(given, float) and not math.isfinite(given):
        raise ValueError(given)
    return given


def _integer(minimum: int, maximum: int = MAX_SAFE_INTEGER) -> Callable[[Any], int]:
    def convert(given: Any) -> int:
        number = _number(given)
        if number != int(number) or not minimum <= number <= maximum:
            raise ValueError(given)
        return int(number)

    return convert


def _fraction(given: Any) -> float:
    number = _number(given)
    if not 0 <= number <= 1:
        raise ValueError(given)
    return number


def _seconds(*, zero: bool) -> Callable[[Any], float]:
    def convert(given: Any) -> float:
        number = _number(given)
        if not 0 <= number <= MAX_SAFE_INTEGER or (number == 0 and not zero):
            raise ValueError(given)
        return float(number)

    return convert


def _path(given: Any) -> Path:
    if not isinstance(given, str) or not given.strip() or "\0" in given:
        raise ValueError(given)
    return Path(os.path.abspath(os.path.expanduser(given)))


def _path_or_off(given: Any) -> Path | None:
    return None if given == "off" else _path(given)


def _shown(name: str) -> str:
    return name if re.fullmatch(r"[\w.-]{1,60}", name) else "a setting whose name is not printable here"


def _suggestion(key: str) -> str:
    import difflib

    near = difflib.get_close_matches(key, SETTINGS, n=1)
    return f"; did you mean {near[0]}?" if near else ""


SETTINGS: Final[dict[str, SettingSpecification]] = {
    row.key: row
    for row in (
        SettingSpecification("maxReferences", "an integer from 1 to 3", _integer(1, 3)),
        SettingSpecification("candidateLimit", "an integer of at least 1", _integer(1)),
        SettingSpecification("maxReferenceBytes", "an integer of at least 1", _integer(1)),
        SettingSpecification("referenceContextFraction", "a number from 0 to 1", _fraction),
        SettingSpecification("modelCatalogue", "the path of a TOML file", _path, is_number=False),
        SettingSpecification("spillDirectory", "a path, or off", _path_or_off, is_number=False),
        SettingSpecification("cleanupPeriodDays", "an integer of at least 0", _integer(0)),
        SettingSpecification("catalog", "a path, or off", _path_or_off, is_number=False),
        SettingSpecification("catalogMaxBytes", "an integer of at least 0", _integer(0)),
        SettingSpecification("candidatesWaitMs", "an integer of at least 0", _integer(0)),
        SettingSpecification("maxMessageBytes", "an integer of at least 1024", _integer(1024)),
        SettingSpecification("maxBatch", "an integer of at least 1", _integer(1)),
        SettingSpecification("maxConcurrentRequests", "an integer of at least 1", _integer(1)),
        SettingSpecification("maxQueuedRequests", "an integer of at least 0", _integer(0)),
        SettingSpecification("requestTimeoutSeconds", "a number above 0", _seconds(zero=False)),
        SettingSpecification("drainSeconds", "a number of at least 0", _seconds(zero=True)),
    )
}
