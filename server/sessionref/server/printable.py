"""Text from sessions and file names as a person may be shown it: nothing in it acts on a terminal or hides."""

from __future__ import annotations

__all__ = ("printable",)


def printable(text: str, *, keep: str = "") -> str:
    """The text with everything that does not print as a visible character or a blank written as an escape."""
    if text.isprintable():
        return text
    return "".join(
        character
        if character.isprintable() or character in keep
        else character.encode("unicode_escape", "surrogatepass").decode("ascii")
        for character in text
    )
