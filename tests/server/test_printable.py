"""What a person is shown of texts that came from elsewhere."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from sessionref.server.printable import printable

ANY_TEXT = st.text(st.characters(codec=None))


@given(ANY_TEXT)
def test_what_is_shown_prints(text: str) -> None:
    assert printable(text).isprintable()


@given(ANY_TEXT)
def test_what_prints_already_is_shown_as_it_is(text: str) -> None:
    shown = printable(text)
    assert printable(shown) == shown
    assert (shown == text) == text.isprintable()


@given(ANY_TEXT)
def test_line_feeds_stay_where_they_are_wanted(text: str) -> None:
    assert printable(text, keep="\n").count("\n") == text.count("\n")


def test_escape_sequences_and_directions_are_spelled_out() -> None:
    assert printable("a\x1b[2J\u202eb\u2028") == "a\\x1b[2J\\u202eb\\u2028"
