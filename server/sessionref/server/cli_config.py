"""`sessionref config`: what is in force, and where each value came from."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from sessionref.server.documents import document_text
from sessionref.server.printable import printable
from sessionref.server.settings import SETTINGS, LoadedSettings
from sessionref.server.tables import format_table

__all__ = ("show_config",)

_NOT_SET = {"maxReferenceBytes": "automatic", "modelCatalogue": "none", "spillDirectory": "off", "catalog": "off"}


def show_config(loaded: LoadedSettings, *, as_json: bool) -> int:
    """Print every setting with its origin. Returns the exit code."""
    rows: dict[str, dict[str, Any]] = {}
    for key, specification in SETTINGS.items():
        value = getattr(loaded.settings, specification.field)
        rows[key] = {
            "value": printable(str(value)) if isinstance(value, Path) else value,
            "origin": loaded.origins[key],
        }
    for warning in loaded.warnings:
        sys.stderr.write(f"sessionref: warning: {warning}\n")
    if as_json:
        sys.stdout.write(document_text(rows))
    else:
        cells = [
            [key, _NOT_SET.get(key, "none") if row["value"] is None else str(row["value"]), row["origin"]]
            for key, row in rows.items()
        ]
        sys.stdout.write(format_table(["SETTING", "VALUE", "FROM"], cells) + "\n")
    return 0
