"""Parsing mentions is linear in the text: shown by counting what is searched, and by a fail-safe on large texts."""

from __future__ import annotations

from collections.abc import Callable
from typing import SupportsIndex

import pytest

from sessionref.protocol import parse_session_reference_text

EVE = "dsh-session:ImV2ZSI"
"""The URI of the session `eve`."""

FAMILIES: dict[str, Callable[[int], str]] = {
    "openings": lambda n: "@[" * n + EVE,
    "openings before an ending": lambda n: "@[" * n + f"]({EVE})",
    "unclosed sites": lambda n: f"]({EVE}" + "](dsh-session:" * n,
    "mentions that never close": lambda n: "@[x](dsh-session: " * n,
    "openings then sites": lambda n: "@[" * n + "](dsh-session:" * n,
    "escaped sites": lambda n: "@[" + "\\](dsh-session:" * n,
    "escaped brackets": lambda n: "@[" + "\\]" * n + f"]({EVE})",
    "brackets": lambda n: "@[" + "]" * n + f"]({EVE})",
    "backslashes": lambda n: "@[" + "\\" * 2 * n + f"]({EVE})",
    "backslashes before sites": lambda n: ("\\" * 40 + "](dsh-session:") * (n // 16),
    "broken escapes": lambda n: "@[\\\n" * n + f"]({EVE})",
    "broken escapes between sites": lambda n: "@[\\\n](dsh-session:" * n,
    "broken escapes before escaped sites": lambda n: "@[\\\n" * n + "\\](dsh-session:" * n,
    "bare URIs": lambda n: f"{EVE} " * n,
    "mentions": lambda n: f"@[x]({EVE})" * n,
    "empty schemes": lambda n: "dsh-session:%" * n,
}


class _CountingText(str):
    """A text that counts the characters which `find` and `rfind` had to look at."""

    looked_at = 0

    def find(self, sub: str, start: SupportsIndex | None = None, end: SupportsIndex | None = None, /) -> int:
        found = str.find(self, sub, start, end)
        self.looked_at += (found if found >= 0 else int(end or len(self))) - int(start or 0)
        return found

    def rfind(self, sub: str, start: SupportsIndex | None = None, end: SupportsIndex | None = None, /) -> int:
        found = str.rfind(self, sub, start, end)
        self.looked_at += int(end or len(self)) - (found if found >= 0 else int(start or 0))
        return found


@pytest.mark.usefixtures("fail_safe")
@pytest.mark.parametrize("family", FAMILIES)
def test_no_part_of_a_text_is_searched_again_and_again(family: str) -> None:
    text = _CountingText(FAMILIES[family](60_000))
    parse_session_reference_text(text)
    assert text.looked_at <= 6 * len(text)


@pytest.mark.usefixtures("fail_safe")
def test_text_that_joins_into_many_tokens_is_broken_in_linear_work() -> None:
    joined = f"@[dsh-]({EVE})session:🐝 @[dsh-session]({EVE}):ImV2ZSI "
    parsed = parse_session_reference_text(joined * 100_000)
    assert len(parsed.references) == 200_000
    assert "dsh-session:I" not in parsed.text
