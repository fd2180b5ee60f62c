"""Errors of the package. All of them are DflopErrors."""


class DflopError(Exception):
    """Something of dflop failed."""


class InputError(DflopError, ValueError):
    """An argument or a file is wrong; the message says where, what was expected and what was found."""


class Infeasible(DflopError):
    """Nothing is what was asked for, as bins that obey a cap."""


class ServerError(DflopError):
    """The child process `dflop serve` died, hangs, or cannot be started."""


class CommandError(DflopError):
    """A dflop command failed; `exit_code` and `stderr` are its own."""

    def __init__(self, message, exit_code, stderr):
        super().__init__(message)
        self.exit_code = exit_code
        self.stderr = stderr
