"""How a command ends: its exit codes, and the errors that carry one."""

from __future__ import annotations

DONE = 0
REFUSED = 1
USAGE = 2
UNREACHABLE = 3
CONFIGURATION = 78
INTERRUPTED = 130


class CommandError(Exception):
    """A command cannot go on; `str()` is the one line that says why."""

    exit_code = REFUSED


class GatewayAway(CommandError):
    """The gateway was lost on the way, and is not back."""

    exit_code = UNREACHABLE


class UsageInvalid(CommandError):
    """The command was asked for something that makes no sense, or is not available yet."""

    exit_code = USAGE


class ConfigurationInvalid(CommandError):
    """The configuration, or the machine, does not allow it."""

    exit_code = CONFIGURATION
