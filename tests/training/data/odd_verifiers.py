"""Verifiers that hang, die or miss their tool, by what the answer says."""

from __future__ import annotations

import os
import subprocess
import time

from evaluation.verifiers import Verdict, verify
from evaluation.verifiers.verdict import UNDECIDED
from workspace.errors import MissingToolError

HANGS_WITH = ["sleep", "613.75"]  # nobody else runs that


def odd(kind: str, truth: str, answer: str) -> Verdict:
    if answer == "hang":
        subprocess.Popen(HANGS_WITH)
        time.sleep(600)
    if answer == "slow":
        time.sleep(600)
    if answer == "die":
        os._exit(3)
    if answer == "raise":
        raise RecursionError("too deep")
    if answer == "undecided":
        return Verdict(None, UNDECIDED, "no proof")
    if answer == "tool":
        raise MissingToolError("iverilog is not on PATH")
    if answer == "chatty":
        print("x" * 100_000)
    return verify(kind, truth, answer)
