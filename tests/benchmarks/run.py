"""`python tests/benchmarks/run.py [--quick] [--only NAME]`: measures the service, prints figures, asserts nothing."""

from __future__ import annotations

import sys
from pathlib import Path


def _run() -> None:
    sys.path[0] = str(Path(__file__).resolve().parent.parent)
    from benchmarks.suite import main

    main()


if __name__ == "__main__":
    _run()
