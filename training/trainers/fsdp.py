"""Continued pre-training and fine-tuning with sharded weights: our own loop over torch's FSDP2.

    python -m training.trainers.fsdp SPEC.json         (one rank; more through torchrun)

In: a model folder and `views/cpt` (text) or `views/trl_sft` (prompt, completion). Out: as `sft`,
and a ledger of samples. The result is a function of the data, the settings and the seed:

- A step's rows are the same with any number of ranks, and its loss and gradients are sums over its
  tokens, divided by their number in the whole step. 4, 2 or 3 ranks, or other micro-batches, give
  the same weights up to rounding; the same number of ranks gives the same bits, however often the
  run was killed.
- Documents packed into one sequence do not see each other: positions start at 0 in each, from which
  transformers makes the mask of its eager, sdpa, flex and flash attention.

Not covered: tensor, pipeline and context parallelism; adapters (TRL or an external trainer).
"""

from __future__ import annotations

import math
import sys
from typing import Any, NamedTuple

from training.checkpoints import writer_folder
from training.cluster.heartbeat import Section
from training.ledger import Ledger, Origin
from training.memory_watch import MemoryWatch
from training.trainers import entry
from training.trainers.feeding import Pass, Share, make_batch, share_of
from training.trainers.held_out_answers import HeldOutAnswers, of_samples
from training.trainers.limits import HourLimit, evaluations_without_gain
from training.trainers.model_io import keep_best, load_tokenizer, trained_model
from training.trainers.ranks import Ranks, make_deterministic, start
from training.trainers.sample_order import SampleOrder
from training.trainers.samples import HELD_OUT_NAME, Samples, prepare_samples, read_samples
from training.trainers.save_interval import SAVE_INTERVAL_NAME, SaveSchedule
from training.trainers.schedule import schedule_of
from training.trainers.sharded_checkpoint import Saver, Trained, resume, seed_generators
from training.trainers.sharded_model import gather, load_sharded, make_optimizer
from training.trainers.spec import StageOutcome, TrainSpec
from training.trainers.step_report import StepReport
from training.trainers.stopping import StopRequest, of_rank_zero
from workspace.errors import UserError
from workspace.memory import HeapTrimmer


def train(spec: TrainSpec, stop: StopRequest) -> StageOutcome | None:
    """Train to the end, or return None with a checkpoint written when a stop was asked for."""
    import torch.distributed as dist

    if spec.adapter.method != "full":
        raise UserError(f"the fsdp trainer trains all weights: set {spec.stage}.backend: trl")
    make_deterministic(use_gpu=spec.use_gpu)
    outcome = Run(spec, start(use_gpu=spec.use_gpu), stop).to_the_end()
    dist.destroy_process_group()
    return outcome


class Agreement(NamedTuple):
    """What the ranks know together when a step's gradients are there."""

    loss: float
    stop: bool
    save_failed: bool


class Run:
    """One attempt of one stage, on one rank."""

    def __init__(self, spec: TrainSpec, ranks: Ranks, stop: StopRequest) -> None:
        self.spec, self.ranks, self.stop = spec, ranks, stop
        self.tokenizer = load_tokenizer(spec.parent)
        folder = ranks.on_first(lambda: prepare_samples(spec, self.tokenizer))
        self.samples = read_samples(folder)
        self.held = read_samples(folder, HELD_OUT_NAME) if spec.evaluates else None
        self.order = SampleOrder(len(self.samples), spec.seed)
        self.schedule = schedule_of(spec, self.samples)
        model = load_sharded(spec, ranks)
        self.trained = Trained(model, make_optimizer(model, self.schedule))
        self.answers = HeldOutAnswers(
            spec,
            self.tokenizer,
            of_samples(spec, self.held) if self.held is not None else (),
            total_steps=self.schedule.steps,
            agree=lambda token: int(of_rank_zero(token)),
            writes=ranks.is_first,
        )
        seed_generators(spec.seed + ranks.rank)
        found = resume(spec, ranks, self.trained, self.origin_of_samples())
        self.done = found.step if found else 0
        self.eval_losses: list[float] = found.manifest()["eval_losses"] if found else []
        self.ledger = Ledger(
            spec.attempt_dir,
            writer_folder(spec.checkpoints, spec.attempt).name,
            rank=ranks.rank,
            world_size=ranks.world_size,
            resumed_from=Origin(found.writer, found.step) if found else None,
            samples=len(self.samples),
            rows_per_step=self.schedule.rows_per_step,
        )
        self.saver = Saver(spec, ranks, self.trained, self.ledger)
        self.saves = SaveSchedule(
            spec.checkpoint_every_steps,
            spec.mtbf_s,
            spec.stage_dir / SAVE_INTERVAL_NAME,
            writes=ranks.is_first,
            agree=of_rank_zero,
        )
        self.hours = HourLimit(spec)
        self.heap = HeapTrimmer()
        self.memory = MemoryWatch(
            spec.attempt_dir, rank=ranks.rank, settings=spec.memory, gpu=spec.use_gpu
        )
        self.reported = StepReport(spec, ranks, self.schedule, self.trained.model)

    def to_the_end(self) -> StageOutcome | None:
        """All steps that are left; None when it was stopped before."""
        last, ended_by = self.schedule.steps, "budget"
        self.hours.start()
        self.reported.begin()
        for step in range(self.done + 1, last + 1):
            agreed = self.step(step)
            if step == last:
                break
            if agreed.stop:
                self.save(step, wait=True)
                self.saver.close()
                return None
            if self.has_lost_patience():
                last, ended_by = step, "patience"
                break
            if self.hours.is_up():
                last, ended_by = step, "hours"
                self.save(step, wait=True)  # used up, they cannot be trained again
                break
            if self.saves.is_due(step, self.reported.step_s):
                self.save(step, wait=not self.schedule.async_save)
        self.reported.end()
        self.saver.finish()
        self.saver.close()
        return self.publish(last, ended_by)

    def step(self, step: int) -> Agreement:
        """One step of the optimizer, with its lines in the ledger and the metrics."""
        rows = self.schedule.rows_per_step
        was_saving = self.saver.is_saving
        chosen = self.order.between((step - 1) * rows, step * rows)
        share = self.share(chosen, self.samples)
        agreed = self.agree(self.accumulate(share))
        if not math.isfinite(agreed.loss):
            raise UserError(
                f"the {self.spec.stage} loss is {agreed.loss} at step {step}: the training "
                f"diverged. Lower {self.spec.stage}.learning_rate."
            )
        norm = self.update(self.schedule.rate(step))
        self.ledger.trained(step, share.places, share.samples)
        extra = {}
        if self.held is not None and step % self.spec.evaluation.every_steps == 0:
            with self.reported.section(Section.EVALUATION):
                extra["eval_loss"] = self.evaluate(self.held)
                if self.answers.is_due(step):
                    self.answers.ask(self.trained.model, step)
        self.look_at_memory(step)
        self.reported.step(
            step,
            loss=agreed.loss,
            norm=norm,
            tokens=sum(self.samples.length(row) for row in chosen),
            epoch=self.schedule.epochs(step, len(self.samples)),
            memory=self.memory,
            extra=extra,
            is_saving=was_saving or self.saver.is_saving,
        )
        if agreed.save_failed:
            self.saver.finish()
        return agreed

    def look_at_memory(self, step: int) -> None:
        """Ask for a new start before the limit; give back free pages now and then."""
        self.memory.after_step(step, self.schedule.steps)
        if self.memory.wants_restart:
            self.stop.request()
        if self.ranks.device.type == "cpu":
            self.heap.between_rounds()

    def share(self, rows: list[int], samples: Samples) -> Share:
        """What this rank feeds to the model of `rows`."""
        return share_of(
            rows,
            samples,
            tokens_per_forward=self.schedule.tokens_per_forward,
            rank=self.ranks.rank,
            ranks=self.ranks.world_size,
        )

    def accumulate(self, share: Share) -> Any:
        """Gradients of a step; returns this rank's part of its mean loss."""
        import torch

        total = torch.zeros((), device=self.ranks.device)
        for number, part in enumerate(share.passes, start=1):
            # Copies of the weights (HSDP) need to agree once, on the sum.
            self.trained.model.set_requires_all_reduce(number == len(share.passes))
            loss = self.summed_loss(part, self.samples) / max(1, share.learned)
            loss.backward()
            total += loss.detach()
        return total

    def summed_loss(self, part: Pass, samples: Samples) -> Any:
        """Over the learned tokens of a pass."""
        import torch.nn.functional as functional

        with self.reported.fetching():
            pad = self.tokenizer.pad_token_id
            batch = make_batch(samples, part.samples, pad, self.ranks.device)
        logits = self.trained.model(
            input_ids=batch.ids, position_ids=batch.positions, use_cache=False
        ).logits
        return functional.cross_entropy(
            logits[:, :-1].flatten(0, 1).float(), batch.labels[:, 1:].flatten(), reduction="sum"
        )

    def agree(self, loss: Any) -> Agreement:
        """Add up the ranks' losses and their reasons to stop."""
        import torch
        import torch.distributed as dist

        flags = [float(self.stop.seen_here()), float(self.saver.has_failed)]
        known = torch.tensor([0.0, *flags], dtype=torch.float64, device=self.ranks.device)
        known[0] = loss
        dist.all_reduce(known)
        total, stops, failures = known.tolist()
        return Agreement(total, stops > 0, failures > 0)

    def update(self, rate: float) -> float:
        """Let the optimizer use the gradients; returns their norm before clipping."""
        import torch

        model, optimizer = self.trained
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), self.schedule.max_grad_norm)
        for group in optimizer.param_groups:
            group["lr"] = rate
        optimizer.step()
        optimizer.zero_grad()
        return float(norm.full_tensor())

    def evaluate(self, held: Samples) -> float:
        """Add the loss on samples not trained on to those before; keep the best weights."""
        import torch

        share = self.share(list(range(len(held))), held)
        total = torch.zeros((), device=self.ranks.device)
        self.trained.model.eval()
        with torch.no_grad():
            for part in share.passes:
                total += self.summed_loss(part, held)
        self.trained.model.train()
        self.eval_losses.append(self.agree(total).loss / max(1, share.learned))
        if self.spec.keeps_best and evaluations_without_gain(self.eval_losses) == 0:
            whole = gather(self.trained.model)
            self.saver.finish()  # it speaks to the other ranks as well
            self.ranks.on_first(lambda: keep_best(self.spec, whole))
        return self.eval_losses[-1]

    def has_lost_patience(self) -> bool:
        """Whether the loss on held-out samples has not fallen for too long."""
        behind = evaluations_without_gain(self.eval_losses)
        return self.spec.keeps_best and behind >= self.spec.evaluation.patience

    def save(self, step: int, *, wait: bool) -> None:
        """Save what `step` left."""
        import torch

        about = {
            **self.origin_of_samples(),
            "cursor": step * self.schedule.rows_per_step,
            "eval_losses": list(self.eval_losses),  # a save may be written later
            "threads": torch.get_num_threads(),
            "torch": str(torch.__version__),
        }
        with self.reported.section(Section.CHECKPOINT):
            stalled_s = self.saver.save(step, about, wait=wait)
        self.saves.saved(step, stalled_s)

    def origin_of_samples(self) -> dict[str, Any]:
        """What the order of the samples is made of; a run does not go on with another one."""
        return {
            "stage": self.spec.stage,
            "seed": self.spec.seed,
            "samples": len(self.samples),
            "made_from": self.samples.made_from,
            "rows_per_step": self.schedule.rows_per_step,
        }

    def publish(self, steps: int, ended_by: str) -> StageOutcome:
        """Gather and publish the model, and the stage's result last of all."""
        spec = self.spec
        outcome = StageOutcome(
            stage=spec.stage,
            attempt=spec.attempt,
            steps=steps,
            rows=len(self.samples),
            rejects=self.samples.rejects,
            tokens=self.reported.tokens,
            last=self.reported.last,
            ended_by=ended_by,
        )
        self.ledger.flush()
        whole = gather(self.trained.model)
        self.ranks.on_first(
            lambda: entry.publish_model(spec, trained_model(spec, whole), self.tokenizer, outcome)
        )
        return outcome


if __name__ == "__main__":
    sys.exit(entry.main(train))
