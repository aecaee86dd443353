"""Settings of the data stage."""

from __future__ import annotations

from pathlib import Path

from training.data.generators.generator import Limits
from training.data.selection import Budget
from training.data.splits import SplitSettings
from workspace.config import StageConfig, setting


class DatasetConfig(StageConfig):
    """What to make rows of, how many, and how to split."""

    workspace: Path = setting(
        position=0,
        description="folder with the published corpus and graph",
        affects_output=False,
    )
    name: str = setting("dsm", position=1, description="name of the data set")
    seed: int = setting(0, position=2, ge=0, description="seed of splits, phrasings and sampling")
    test_fraction: float = setting(
        0.15, position=3, gt=0, lt=0.6, description="share of the documents' content held out"
    )
    validation_fraction: float = setting(
        0.05, position=4, ge=0, lt=0.4, description="share held out for choosing settings"
    )
    max_train_tokens: int = setting(
        0, position=5, ge=0, description="tokens of all fine-tuning rows together, 0 = no limit"
    )
    row_overhead_tokens: int = setting(
        32, position=6, ge=0, le=4096, description="tokens that the chat template adds to a row"
    )
    max_cpt_tokens: int = setting(
        0, position=7, ge=0, description="tokens of plain training text, 0 = no limit"
    )
    max_rows_per_task: int = setting(
        2000, position=8, ge=1, description="training rows of one kind of question"
    )
    max_rows_per_unit: int = setting(
        4, position=9, ge=1, le=64, description="rows per table, chunk or module and generator"
    )
    closed_book_facts: int = setting(
        150, position=10, ge=0, description="facts taught and asked without the document"
    )
    forms_per_fact: int = setting(
        3, position=11, ge=1, le=4, description="training phrasings of a fact"
    )
    max_answer_share: float = setting(
        0.25, position=12, gt=0, le=1, description="share of a task that one answer may have"
    )
    open_book_test_rows: int = setting(
        150, position=13, ge=0, description="test questions with the passage in the prompt"
    )
    skill_test_rows: int = setting(30, position=14, ge=0, description="RTL completion tests")
    validation_rows: int = setting(60, position=15, ge=0, description="validation questions")
    rlvr_fraction: float = setting(
        0.25, position=16, ge=0, le=1, description="training questions set apart for rewards"
    )
    max_rlvr_rows: int = setting(500, position=17, ge=0, description="at most so many of them")
    max_prompt_tokens: int = setting(
        200, position=18, ge=80, le=8000, description="estimated tokens of an open-book prompt"
    )
    max_rtl_lines: int = setting(
        60, position=19, ge=3, le=2000, description="lines of a module to complete"
    )
    max_rtl_tokens: int = setting(
        600, position=20, ge=50, le=16000, description="estimated tokens of such a module"
    )
    rtl_cycles: int = setting(
        128, position=21, ge=32, le=4096, description="clock cycles simulated per check"
    )
    max_rtl_modules: int = setting(
        1000, position=22, ge=1, description="modules simulated, about; training ones are sampled"
    )
    workers: int = setting(
        2, position=23, ge=1, le=512, affects_output=False, description="documents at the same time"
    )

    choice_rows: int = setting(
        0, position=24, ge=0, le=64,
        description="multiple-choice questions proposed per table, 0 = none",
    )  # fmt: skip

    def limits(self, n_modules: int) -> Limits:
        """What generators respect in a corpus of `n_modules` modules."""
        return Limits(
            max_prompt_tokens=self.max_prompt_tokens,
            max_rows_per_unit=self.max_rows_per_unit,
            max_rtl_tokens=self.max_rtl_tokens,
            max_rtl_lines=self.max_rtl_lines,
            rtl_cycles=self.rtl_cycles,
            choice_rows=self.choice_rows,
            rtl_share=min(1.0, self.max_rtl_modules / max(1, n_modules)),
        )

    @property
    def split_settings(self) -> SplitSettings:
        """How documents are shared out."""
        return SplitSettings(
            seed=self.seed,
            test_fraction=self.test_fraction,
            validation_fraction=self.validation_fraction,
        )

    @property
    def budget(self) -> Budget:
        """How many rows are published."""
        return Budget(
            seed=self.seed,
            max_train_tokens=self.max_train_tokens,
            row_overhead_tokens=self.row_overhead_tokens,
            max_cpt_tokens=self.max_cpt_tokens,
            max_rows_per_task=self.max_rows_per_task,
            closed_book_facts=self.closed_book_facts,
            max_answer_share=self.max_answer_share,
            open_book_test_rows=self.open_book_test_rows,
            skill_test_rows=self.skill_test_rows,
            validation_rows=self.validation_rows,
            rlvr_fraction=self.rlvr_fraction,
            max_rlvr_rows=self.max_rlvr_rows,
        )
