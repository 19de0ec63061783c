"""What Copilot CLI notes of a session beside its log, in YAML: its name."""

from __future__ import annotations

from typing import Final

from sessionref.server.stores.folders import OpenFile

__all__ = ("title_in", "workspace_title")

WORKSPACE_BYTES: Final = 64 * 1024
"""The longest file that is looked into: real ones have a few hundred bytes."""

DEPTH: Final = 16
"""Levels of nesting: real files have one, and a parser's work grows with them."""

_TITLES: Final = ("name", "summary")
"""The members that name a session, that of newer builds first."""

_NULLS: Final = ("", "~", "null", "Null", "NULL")
_TEXT_TAGS: Final = (None, "!", "tag:yaml.org,2002:str")
"""What a text can be marked as; a plain scalar has no mark, and is a text but where it spells a null."""


def workspace_title(file: OpenFile) -> str | None:
    """The name in an open file; None if there is none, or the file is none of these. Raises OSError."""
    data = file.part(0, WORKSPACE_BYTES + 1)
    return title_in(data.decode("utf-8", "replace")) if len(data) <= WORKSPACE_BYTES else None


def title_in(text: str) -> str | None:
    """The name in a YAML text; None if there is none, or the text is no YAML as a whole."""
    nodes = _top_nodes(text)
    members = dict(zip(nodes[::2], nodes[1::2], strict=False))
    return next((title for name in _TITLES if (title := members.get(name))), None)


def _top_nodes(text: str) -> list[str | None]:
    """The names and values in the mapping that a text is, by turns; None for each that is no text.

    The parser's events are all that is needed. Nothing is built of them, so that the aliases, merges and tags of a
    hostile file come to nothing.
    """
    # Loaded here, so that homes without these files do without it.
    import yaml

    nodes: list[str | None] = []
    depth = 0
    try:
        for event in yaml.parse(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)):
            if isinstance(event, yaml.DocumentEndEvent):
                break
            if isinstance(event, yaml.CollectionEndEvent):
                depth -= 1
            elif isinstance(event, yaml.NodeEvent):
                if depth == 0 and not isinstance(event, yaml.MappingStartEvent):
                    return []
                if depth == 1:
                    nodes.append(None)
                    if isinstance(event, yaml.ScalarEvent) and event.tag in _TEXT_TAGS:
                        is_null = event.implicit[0] and event.value in _NULLS
                        nodes[-1] = None if is_null else event.value
                depth += isinstance(event, yaml.CollectionStartEvent)
                if depth > DEPTH:
                    return []
    except (yaml.YAMLError, ValueError, RecursionError):
        return []
    return nodes
