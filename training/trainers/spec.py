"""What a trainer process is told: one JSON file per attempt, written by the supervisor."""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

from training.trainers.settings import (
    SEQUENCES_PER_ROW,
    Backend,
    CptSettings,
    DpoSettings,
    Precision,
    RlvrSettings,
    SftSettings,
    StageName,
)
from training.trainers.shared_settings import (
    AdapterSettings,
    EvaluationSettings,
    ExternalSettings,
    MemorySettings,
    ParallelLayout,
    Reporter,
)

CPU_TOKENS_PER_FORWARD = 1024


class TrainSpec(BaseModel):
    """One attempt of one stage of a run. All paths are absolute."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    stage: StageName
    attempt: int
    stage_dir: Path = Field(description="runs/<run>/<stage>: attempts, checkpoints, model")
    attempt_dir: Path = Field(description="metrics.jsonl, error.json, the stop file")
    parent: Path = Field(description="folder of the model to start from")
    data: tuple[Path, ...] = Field(description="Parquet files of the stage's view, train split")
    eval_data: tuple[Path, ...] = Field(
        default=(), description="the same view's validation split; empty: held out, or none"
    )
    cpt: CptSettings = CptSettings()
    sft: SftSettings = SftSettings()
    dpo: DpoSettings = DpoSettings()
    rlvr: RlvrSettings = RlvrSettings()
    adapter: AdapterSettings = AdapterSettings()
    external: ExternalSettings = ExternalSettings()
    layout: ParallelLayout = ParallelLayout()
    evaluation: EvaluationSettings = EvaluationSettings()
    seed: int
    precision: Precision
    use_gpu: bool
    checkpoint_every_steps: int = Field(description="0: from the time of a save and `mtbf_s`")
    keep_checkpoints: int
    mtbf_s: float = Field(default=3.6e6, description="expected time between failures of the job")
    memory: MemorySettings = MemorySettings()
    report_to: tuple[Reporter, ...] = ()

    @property
    def settings(self) -> CptSettings | SftSettings | DpoSettings | RlvrSettings:
        """Those of this stage."""
        own: CptSettings | SftSettings | DpoSettings | RlvrSettings = getattr(self, self.stage)
        return own

    @property
    def backend(self) -> Backend:
        return self.settings.backend

    @property
    def rows_per_step(self) -> int:
        """Samples that an optimizer step takes from their order: of rlvr, prompts."""
        settings = self.settings
        if isinstance(settings, RlvrSettings):
            return settings.prompts_per_step
        return settings.rows_per_step

    @property
    def micro_batch(self) -> int:
        """Rows (in dpo: pairs) in one forward pass of one rank, for a trainer that counts in rows.

        Where the settings name no number, as the layout says, which counts in sequences.
        """
        per_row = SEQUENCES_PER_ROW[self.stage]
        planned = max(1, self.layout.micro_batch // per_row)
        return getattr(self.settings, "micro_batch", 0) or planned

    @property
    def rows_per_forward(self) -> int:
        """The same for TRL's dpo and rlvr; 0: all of a rank's share, unless told otherwise on CPUs.

        A layout on GPUs was planned to fit with its micro-batch, so that is what runs.
        """
        return self.micro_batch if self.use_gpu else getattr(self.settings, "micro_batch", 0)

    @property
    def tokens_per_forward(self) -> int:
        """Tokens in one forward pass of one rank of sft, padding included."""
        planned = self.layout.micro_batch * self.sft.max_length
        return self.sft.tokens_per_forward or (planned if self.use_gpu else CPU_TOKENS_PER_FORWARD)

    @property
    def evaluates(self) -> bool:
        """Whether the loss on unseen rows is measured (answers of rlvr are judged as they come)."""
        return self.stage != "rlvr" and self.evaluation.every_steps > 0

    @property
    def keeps_best(self) -> bool:
        """Whether the weights of the lowest such loss are published instead of the last."""
        return self.evaluates and self.evaluation.patience > 0

    @property
    def checkpoints(self) -> Path:
        return self.stage_dir / "checkpoints"

    @property
    def model_dir(self) -> Path:
        return self.stage_dir / "model"

    @property
    def result_file(self) -> Path:
        """Written last: the stage is done when it is there."""
        return self.stage_dir / "result.json"


class StageOutcome(BaseModel):
    """`result.json`: what a finished stage did."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    stage: StageName
    attempt: int
    steps: int
    rows: int = Field(description="rows that could be used")
    rejects: dict[str, int] = Field(description="reason code -> rows left out")
    tokens: int = Field(description="trained in the last attempt, without padding")
    last: dict[str, float] = Field(description="metrics of the last step")
    ended_by: str = Field(
        default="budget", description="budget | hours | patience: what ended the stage"
    )
