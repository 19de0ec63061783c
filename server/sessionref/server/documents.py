"""JSON documents as people read them: indented by two, a line feed at the end."""

from __future__ import annotations

from typing import Any

import orjson

__all__ = ("document_text",)


def document_text(document: Any) -> str:
    """A document of builtins as text. Raises TypeError for what JSON cannot hold."""
    return orjson.dumps(document, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE).decode()
