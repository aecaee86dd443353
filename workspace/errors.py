"""Typed errors. `UserError` is for what a user can mend; its text names the thing and the cure.

Retries look at the type alone: `TransientError` may be retried, everything else is terminal.
"""

from __future__ import annotations


class DsmError(Exception):
    """Base of the errors raised on purpose by this project."""


class UserError(DsmError, ValueError):
    """Bad input, configuration or environment; the message says which and what to do."""


class MissingInputError(UserError):
    """A stage was asked to run before the stage that it reads from was published."""


class MissingToolError(UserError):
    """A program or optional package that the request needs is not installed."""


class WorkspaceBusyError(UserError):
    """Another process holds the workspace's lock for this stage."""


class CorruptWorkspaceError(DsmError):
    """Published files do not match their manifest."""


class TransientError(DsmError):
    """Worth another try: a lost connection, a busy scheduler, a full queue."""
