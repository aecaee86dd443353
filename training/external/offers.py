"""What each external program does here: the stages, and the view of the data set that each reads.

Read by the programs themselves and by the settings that name them, so that a form cannot promise
what no program does.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from training.trainers.settings import StageName

STAGES: Final[Mapping[str, Mapping[StageName, str]]] = MappingProxyType(
    {
        "torchtitan": MappingProxyType({"cpt": "cpt"}),
        "nemo_rl": MappingProxyType({"sft": "trl_sft", "dpo": "trl_dpo"}),
        "verl": MappingProxyType({"sft": "verl_sft", "rlvr": "verl_rl"}),
        "prime_rl": MappingProxyType({"sft": "trl_sft"}),
    }
)
CHECKOUTS: Final = ("nemo_rl",)  # run from a clone of their repository


def stages_in_words() -> str:
    """`torchtitan (cpt), nemo_rl (sft, dpo), …`."""
    return ", ".join(f"{name} ({', '.join(stages)})" for name, stages in STAGES.items())
