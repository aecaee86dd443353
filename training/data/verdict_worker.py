"""A process that gives verdicts, one at a time, and may be killed at any moment.

    python -m training.data.verdict_worker MODULE:FUNCTION

In: one JSON line {"kind", "truth", "answer"} each; out: first `{"ready": true}`, then a line for
each: {"score", "outcome", "detail"}, or {"refused": text} where the row itself is at fault.
Started by `training.data.verdict_pool`.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from collections.abc import Callable
from typing import IO, Any

from evaluation.verifiers.verdict import Verdict
from workspace.errors import MissingToolError, UserError


def main(place: str) -> int:
    """Serve until stdin ends."""
    # What a verifier prints must not get between the answers.
    replies = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    module, _, name = place.partition(":")
    verify: Callable[[str, str, str], Verdict] = getattr(importlib.import_module(module), name)
    _say(replies, {"ready": True})
    for line in sys.stdin:
        _say(replies, _answer(verify, json.loads(line)))
    return 0


def _answer(verify: Callable[[str, str, str], Verdict], asked: dict[str, str]) -> dict[str, Any]:
    try:
        verdict = verify(asked["kind"], asked["truth"], asked["answer"])
    except MissingToolError as error:
        return {"score": None, "outcome": "infra:missing_tool", "detail": str(error)}
    except UserError as error:
        return {"refused": str(error)}
    except Exception as error:
        # One answer without a verdict is better than a run that ends; it is counted as such.
        detail = f"{type(error).__name__}: {error}"
        return {"score": None, "outcome": "infra:crash", "detail": detail}
    return {"score": verdict.score, "outcome": verdict.outcome, "detail": verdict.detail}


def _say(stream: IO[str], message: dict[str, Any]) -> None:
    stream.write(json.dumps(message) + "\n")
    stream.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
