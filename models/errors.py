"""The one exception family of kernelroof.

Every message says what happened, where (file, field or command) and what to do next. It is the
only module that all four rooms share; it imports nothing.
"""

from __future__ import annotations


class KernelroofError(Exception):
    """Base of every error a user can cause or meet; the command line prints it as one line.

    Args:
        what: what happened and where, without a trailing full stop.
        hint: what to do next, as an imperative sentence; may be empty.
    """

    exit_code = 2

    def __init__(self, what: str, hint: str = "") -> None:
        self.what = what
        self.hint = hint
        super().__init__(f"{what}. {hint}" if hint else what)

    def locate(self, where: str) -> None:
        """Name the file that this is about, for an error of a reader that knows only a text."""
        self.what = f"{where}: {self.what}"
        self.args = (f"{self.what}. {self.hint}" if self.hint else self.what,)


class UsageError(KernelroofError):
    """An option or argument that makes no sense (batch 0, an unknown dtype)."""


class UnknownModelError(KernelroofError):
    """No preset, folder, config file or reachable Hub id of that name."""


class ConfigError(KernelroofError):
    """A model config that is not JSON, lacks a field or contradicts itself; names the field."""


class NoClosedFormError(ConfigError):
    """A config whose architecture has no closed form here; tracing may still know it."""


class UnknownGpuError(KernelroofError):
    """A GPU that is not in the table; nothing is guessed for it."""


class OutputError(KernelroofError):
    """A run folder or file that can't be written, is locked, or holds another run."""


class DriverError(KernelroofError):
    """The model could not be built or run as asked."""


class ReportError(KernelroofError):
    """A profiler export that can't be read, or that lacks what was asked for."""
