"""`python -m sessionref.server.schemas FOLDER` writes the published documents; tests fail when they are stale."""

from __future__ import annotations

import sys
from pathlib import Path

from sessionref.protocol.schema import documents
from sessionref.protocol.typescript import typescript_declarations
from sessionref.server.documents import document_text

__all__ = ("document_text", "main")


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
