"""What a Hugging Face trainer tells its node agent: the section it is in, each step's own seconds.

A rank's own seconds are those of its forward passes: there it waits for nobody, whereas gradients
are reduced over all ranks during the backward pass. Not covered: on GPUs a forward pass returns
before it is done, so there steps are counted, but no straggler can be named.

`beating` imports transformers; call it inside a trainer process.
"""

from __future__ import annotations

import time
from typing import Any

from training.cluster.heartbeat import Section, of_this_rank


class ForwardClock:
    """Adds up the wall time of forward passes on CPU: of a model, or of modules side by side."""

    def __init__(self, *modules: Any) -> None:
        self._since = 0.0
        self.seconds = 0.0
        for module in modules:
            module.register_forward_pre_hook(self._enter)
            module.register_forward_hook(self._leave)

    def take(self) -> float:
        """The seconds since the last call."""
        taken, self.seconds = self.seconds, 0.0
        return taken

    def _enter(self, *_: Any) -> None:
        self._since = time.monotonic()

    def _leave(self, *_: Any) -> None:
        self.seconds += time.monotonic() - self._since


def beating(*, use_gpu: bool) -> Any:
    """The callback; it comes last, when the others have said whether to save and to evaluate."""
    from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

    class Beating(TrainerCallback):  # type: ignore[misc]
        """Tells which section begins."""

        def __init__(self) -> None:
            self._beat = of_this_rank()
            self._forward: ForwardClock | None = None

        def on_train_begin(
            self,
            args: TrainingArguments,
            state: TrainerState,
            control: TrainerControl,
            model: Any = None,
            **_: Any,
        ) -> None:
            self._forward = None if use_gpu else ForwardClock(model)
            self._beat.section(Section.STEP)

        def on_step_end(
            self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
        ) -> None:
            self._beat.step(state.global_step, self._forward.take() if self._forward else None)
            if control.should_evaluate:
                self._beat.section(Section.EVALUATION)
            elif control.should_save:
                self._beat.section(Section.CHECKPOINT)

        def on_evaluate(
            self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
        ) -> None:
            if self._forward:
                self._forward.take()
            self._beat.section(Section.CHECKPOINT if control.should_save else Section.STEP)

        def on_save(
            self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
        ) -> None:
            self._beat.section(Section.STEP)

        def on_train_end(
            self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
        ) -> None:
            self._beat.section(Section.CHECKPOINT)  # the model is written next

    return Beating()
