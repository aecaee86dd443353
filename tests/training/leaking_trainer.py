"""The SFT trainer with a leak: `python leaking_trainer.py SPEC.json`, LEAK_MB a step."""

from __future__ import annotations

import os
import sys

from training.trainers import entry, sft
from training.trainers.spec import StageOutcome, TrainSpec
from training.trainers.stopping import StopRequest


def train(spec: TrainSpec, stop: StopRequest) -> StageOutcome | None:
    held: list[bytearray] = []
    leak = int(os.environ["LEAK_MB"]) << 20
    asked = stop.agreed

    def agreed() -> bool:
        """Asked once a step."""
        held.append(bytearray(b"x") * leak)
        return asked()

    stop.agreed = agreed  # type: ignore[method-assign]
    return sft.train(spec, stop)


if __name__ == "__main__":
    sys.exit(entry.main(train))
