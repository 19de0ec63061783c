"""The version of the package, for its metadata and for peers; read from here by the build."""

from typing import Final

__all__ = ("VERSION",)

VERSION: Final = "0.1.0"
