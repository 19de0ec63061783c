"""`python -m sessionref.server.schemas FOLDER` writes the published documents; tests fail when they are stale."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from sessionref.protocol.schema import documents
from sessionref.protocol.typescript import typescript_declarations

__all__ = ("document_text", "main")


def document_text(document: dict[str, Any]) -> str:
    """A document as it stands in its file: indented by two, a newline at the end."""
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def main() -> int:
    """Write every document into the folder that is named. Returns the exit code."""
    if len(sys.argv) != 2:
        sys.stderr.write("usage: python -m sessionref.server.schemas FOLDER\n")
        return 2
    texts = {name: document_text(document) for name, document in documents().items()}
    texts["sessionref.d.ts"] = typescript_declarations()
    for name, text in texts.items():
        Path(sys.argv[1], name).write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
