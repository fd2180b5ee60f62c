"""The errors of the package. All of them are DflopErrors."""

from __future__ import annotations


class DflopError(Exception):
    """An operation of dflop failed."""


class InputError(DflopError, ValueError):
    """An argument or a file is wrong. The message says where, what was expected and what was found."""


class Infeasible(DflopError):
    """Nothing satisfies the request, such as bins that obey a cap. `exit_code` and `stderr` come from a command."""

    def __init__(self, message: str, exit_code: int = 3, stderr: str = "") -> None:
        super().__init__(message)
        self.exit_code = exit_code
        self.stderr = stderr


class ServerError(DflopError):
    """The child process `dflop serve` died, hangs, or cannot be started."""


class CommandError(DflopError):
    """A dflop command failed. `exit_code` and `stderr` come from the command."""

    def __init__(self, message: str, exit_code: int, stderr: str) -> None:
        super().__init__(message)
        self.exit_code = exit_code
        self.stderr = stderr
