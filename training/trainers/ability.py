"""Which layouts a trainer can be told: what the planner may choose and a given layout may be.

    ability.refusal(layout)         # "" where it can, else the end of a sentence about the trainer

One statement a trainer, read before a job is submitted and by the trainer itself, so that the two
cannot disagree.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from training.trainers.shared_settings import Checkpointing, ParallelLayout

Degree = Literal["dp_shard", "dp_replicate", "tp", "pp", "cp"]
DEGREES: tuple[Degree, ...] = ("dp_shard", "dp_replicate", "tp", "pp", "cp")


class Ability(NamedTuple):
    """Degrees that are not named stay 1. `zero`: what `dp_shard` above 1 may divide."""

    trainer: str
    degrees: tuple[Degree, ...]
    zero: tuple[int, ...] = (1, 2, 3)
    checkpointing: tuple[Checkpointing, ...] = ("none", "selective", "full")

    @property
    def words(self) -> str:
        """What it does, as a message says it."""
        plain = set(self.degrees) <= {"dp_shard", "dp_replicate"}
        return f"{'data parallelism' if plain else 'parallelism'} ({', '.join(self.degrees)})"

    def refusal(self, layout: ParallelLayout) -> str:
        """Why it cannot be told this layout, "" where it can."""
        sizes = {name: getattr(layout, name) for name in DEGREES}
        wrong = [f"{name} {n}" for name, n in sizes.items() if n > 1 and name not in self.degrees]
        if wrong:
            return f"does {self.words} alone, not {', '.join(wrong)}"
        if layout.dp_shard > 1 and layout.zero not in self.zero:
            allowed = " or ".join(map(str, self.zero))
            return f"divides among dp_shard ranks as zero {allowed}, not {layout.zero}"
        kept = layout.activation_checkpointing
        if kept not in self.checkpointing:
            allowed = " or ".join(self.checkpointing)
            return f"has activation_checkpointing {allowed}, not {kept}"
        return ""


# TRL's trainers compute all of a block's activations again, or none.
TRL = Ability("trl", ("dp_replicate",), checkpointing=("none", "full"))
FSDP = Ability("fsdp", ("dp_shard", "dp_replicate"))
