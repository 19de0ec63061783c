"""Tables for a terminal."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessionref.server.tables import display_width, format_table


@pytest.mark.parametrize(
    ("text", "width"),
    [("", 0), ("plain", 5), ("日本", 4), ("ｆｕｌｌ", 8), ("ｶﾅ", 2), ("e\u0301", 1), ("😀!", 3)],
)
def test_wide_characters_take_two_columns_and_combining_ones_none(text: str, width: int) -> None:
    assert display_width(text) == width


def test_columns_are_as_wide_as_their_widest_cell_and_two_blanks_apart() -> None:
    table = format_table(("id", "label"), [("a", "short"), ("日本語", "x")])

    assert table == "id      label\na       short\n日本語  x"


def test_a_table_without_rows_is_its_heading() -> None:
    assert format_table(("one", "two"), []) == "one  two"


def test_no_line_ends_in_blanks() -> None:
    assert format_table(("a", "b"), [("long", ""), ("x", "y")]) == "a     b\nlong\nx     y"


def test_a_row_with_a_cell_too_few_is_refused() -> None:
    with pytest.raises(ValueError, match="shorter"):
        format_table(("a", "b"), [("only",)])


@given(
    st.lists(
        st.tuples(st.text("ab日é\u0301", min_size=1), st.text("ab日é", min_size=1), st.text("xy", min_size=1)),
        min_size=1,
    )
)
def test_every_column_begins_at_one_place_in_all_lines(rows: list[tuple[str, str, str]]) -> None:
    lines = format_table(("H", "I", "J"), rows).split("\n")

    first = max(display_width(row[0]) for row in [("H", "I", "J"), *rows]) + 2
    second = first + max(display_width(row[1]) for row in [("H", "I", "J"), *rows]) + 2
    for line, row in zip(lines, [("H", "I", "J"), *rows], strict=True):
        before_last = line.removesuffix(row[2])
        assert display_width(before_last) == second
        assert display_width(before_last.rstrip(" ").removesuffix(row[1])) == first
