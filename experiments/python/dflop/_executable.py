"""Finds the `dflop` executable."""

from __future__ import annotations

import os
import sys

from dflop._errors import ServerError

VARIABLE = "DFLOP_EXECUTABLE"


def executable() -> str:
    """Returns the path of the executable: from the environment variable DFLOP_EXECUTABLE, or else from the wheel.

    Raises ServerError if there is neither.
    """
    path = os.environ.get(VARIABLE)
    if path:
        if not os.access(path, os.X_OK):
            raise ServerError(f"{VARIABLE}: expected the path of the dflop executable, found '{path}'")
        return path
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "bin", "dflop")
    if os.access(path, os.X_OK):
        return path
    raise ServerError(
        f"this copy of the package has no executable ({path}): install the wheel that './dev wheel' makes, "
        f"or set {VARIABLE}"
    )


def main() -> None:
    """Replaces this process by the executable, with the same arguments."""
    path = executable()
    os.execv(path, [path, *sys.argv[1:]])
