"""`python -m sessionref.server` is `sessionref`."""

from sessionref.server.cli import main

__all__ = ()

if __name__ == "__main__":
    raise SystemExit(main())
