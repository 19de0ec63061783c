"""Readable tables for a terminal: columns as wide as their cells, wide characters counted as two."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from typing import Final

__all__ = ("display_width", "format_table")


_NO_WIDTH: Final = ("Mn", "Me", "Cf")
"""Combining characters, and those that only join others."""


def display_width(text: str) -> int:
    """Terminal columns that a text takes: none for combining and joining characters, two for wide ones."""
    return sum(map(_width, text))


def _width(character: str) -> int:
    if unicodedata.category(character) in _NO_WIDTH:
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def format_table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Lines of columns, two blanks apart, the last column unpadded."""
    widths = [max(map(display_width, column)) for column in zip(headings, *rows, strict=True)]
    return "\n".join(
        "  ".join(cell + " " * (width - display_width(cell)) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in (headings, *rows)
    )
