"""Children of a process pool end with the process that they work for, also when that is killed.

    ProcessPoolExecutor(workers, mp_context=get_context("forkserver"), initializer=end_with_parent)

Without it a child waits for its next task forever: it holds the writing end of its own queue, and
with it the fork server stays too. One that is killed by itself is the pool's own affair.
"""

from __future__ import annotations

import multiprocessing
import os
import threading
from multiprocessing.process import BaseProcess


def end_with_parent() -> None:
    """In the child: leave at once, whatever it is doing, when the pool's owner is gone."""
    parent = multiprocessing.parent_process()
    assert parent is not None, "called in a child"
    threading.Thread(target=_end_after, args=(parent,), daemon=True).start()


def _end_after(parent: BaseProcess) -> None:
    parent.join()
    os._exit(1)
