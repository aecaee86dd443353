"""Tell a disk that is full or read-only from a fault of the program.

Such a disk does not mend itself while the work is tried again: the user is told which file it is
about and what to do, and nothing crashes in a loop.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator
from pathlib import Path

from workspace.errors import UserError

_FULL = {
    errno.ENOSPC: "the disk is full",
    errno.EDQUOT: "the disk quota is used up",
    errno.EFBIG: "a file may not grow any further",
}
_READ_ONLY = {
    errno.EROFS: "the file system is read-only",
    errno.EACCES: "there is no permission to write",
    errno.EPERM: "writing is not permitted",
}


AGAIN = "and start the same command again: what is done is kept."


def explain(error: BaseException, folder: Path, again: str = AGAIN) -> UserError | None:
    """What the user should mend, when a full or read-only disk is behind `error`.

    `folder` is named where the error names no file; `again` ends the sentence of the cure.
    """
    for cause in _causes(error):
        number = cause.errno if isinstance(cause, OSError) else None
        place = (cause.filename if isinstance(cause, OSError) else None) or folder
        if number in _FULL:
            cure = f"Free some space, or move the workspace, {again}"
            return UserError(f"cannot write {place}: {_FULL[number]}. {cure}")
        if number in _READ_ONLY:
            return UserError(
                f"cannot write {place}: {_READ_ONLY[number]}. Make it writable, {again}"
            )
    return None


def _causes(error: BaseException) -> Iterator[BaseException]:
    """`error`, what it came from, and the ranks' own errors that DCP gathers into one."""
    seen: set[int] = set()
    waiting = [error]
    while waiting:
        current = waiting.pop()
        if id(current) in seen:
            continue
        seen.add(id(current))
        yield current
        waiting += [cause for cause in (current.__cause__, current.__context__) if cause]
        failures = getattr(current, "failures", None)
        if isinstance(failures, dict):
            waiting += [failure for failure, _ in failures.values()]
