"""A few of the answers that the model gave while it was trained, to be looked at.

    runs/<run>/<stage>/attempts/<n>/rollouts.jsonl      appended by rank 0

Of rlvr those that it sampled, with their rewards; of the other stages those to held-out prompts
(`training.trainers.held_out_answers`). Bounded whatever the length of the run: about 50 steps or
evaluations, spread evenly, of rlvr two prompts each with at most four answers; texts are cut at
4,000 characters. Prompts and answers are hostile text.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final

from evaluation.verifiers import Verdict
from training.metrics import attempt_files

ROLLOUTS_NAME: Final = "rollouts.jsonl"
_STEPS: Final = 50
_PROMPTS: Final = 2
_ANSWERS: Final = 4
_CHARS: Final = 4000


@dataclass(frozen=True)
class Rollout:
    """One answer; `reward` is None without a verdict.

    `outcome`: the verdict's; `evaluation`: nobody judged the answer; `reference`: it is the row's
    own, and not the model's.
    """

    step: int
    prompt: str
    answer: str
    reward: float | None
    outcome: str


class RolloutLog:
    """Writes an attempt's rollouts. `group` answers in a row are of one prompt."""

    def __init__(self, attempt_dir: Path, *, group: int, total_steps: int) -> None:
        self._attempt_dir = attempt_dir
        self._group = group
        self._last = total_steps

    def record(
        self,
        step: int,
        prompts: Sequence[Any],
        answers: Sequence[str],
        verdicts: Sequence[Verdict],
    ) -> None:
        """Keep some of this step's answers, if it is one of the steps that are kept."""
        if not is_kept(step, self._last):
            return
        starts = range(0, min(len(answers), _PROMPTS * self._group), self._group)
        shown = [at for start in starts for at in range(start, start + min(self._group, _ANSWERS))]
        append(
            self._attempt_dir,
            [
                Rollout(
                    step, _text(prompts[at]), answers[at], verdicts[at].score, verdicts[at].outcome
                )
                for at in shown
            ],
        )


def is_kept(number: int, last: int) -> bool:
    """Whether the answers of step or evaluation `number`, of 1 to `last`, are among those kept."""
    return number in (1, last) or number % max(1, -(-last // _STEPS)) == 0


def append(attempt_dir: Path, rollouts: Iterable[Rollout]) -> None:
    """Add answers to an attempt's."""
    with (attempt_dir / ROLLOUTS_NAME).open("a", encoding="utf-8") as stream:
        for rollout in rollouts:
            cut = replace(rollout, prompt=rollout.prompt[:_CHARS], answer=rollout.answer[:_CHARS])
            stream.write(json.dumps(asdict(cut)) + "\n")


def _text(prompt: Any) -> str:
    """A text, or the messages of one, roles left out where there is but one."""
    if isinstance(prompt, str):
        return prompt
    if len(prompt) == 1:
        return str(prompt[0]["content"])
    return "\n\n".join(f"{message['role']}: {message['content']}" for message in prompt)


def read_rollouts(stage: Path) -> list[Rollout]:
    """Of a stage's folder, by step; of steps that were trained again, the newest attempt's."""
    kept: list[Rollout] = []
    for path in attempt_files(stage, ROLLOUTS_NAME):
        again = True  # a new attempt trains some steps again, as a restart inside one does
        for rollout in _read(path):
            again = again or rollout.step < kept[-1].step
            while again and kept and kept[-1].step >= rollout.step:
                kept.pop()
            kept.append(rollout)
            again = False
    return kept


def _read(path: Path) -> list[Rollout]:
    try:
        lines = path.read_bytes().splitlines()
    except FileNotFoundError:
        return []
    return [rollout for line in lines if (rollout := _parse(line))]


def _parse(line: bytes) -> Rollout | None:
    # The last line may be torn, and a power cut leaves zeros.
    try:
        return Rollout(**json.loads(line))
    except (ValueError, TypeError):
        return None
