"""The settings of scoring: which models on which benchmarks, and how they are asked."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import field_validator

from evaluation.benchmarks import DEFAULT_BENCHMARKS
from evaluation.benchmarks.choices import Choosing
from evaluation.benchmarks.tasks import Sampling
from evaluation.benchmarks.verilog.public_set import UPSTREAM
from evaluation.endpoint import Api, Calling
from evaluation.problems import parse_wanted
from evaluation.shard import Engine
from workspace.config import StageConfig, setting


class ScoreConfig(StageConfig):
    """Which models on which benchmarks, with how many samples."""

    workspace: Path = setting(
        position=0,
        description="folder with the published data set and the models",
        affects_output=False,
    )
    dataset: str = setting(
        "dsm", position=1, description="data set whose test rows are asked", affects_output=False
    )
    name: str = setting(
        "dsm",
        position=2,
        description="registered model to score when `models` is empty, against its base model",
        affects_output=False,
    )
    models: tuple[str, ...] = setting(
        (),
        position=3,
        description="NAME, NAME:VERSION, base:NAME, model folders or http://HOST/v1#MODEL, each "
        "also as LABEL=...; the first is the baseline",
        affects_output=False,
    )
    benchmarks: tuple[str, ...] = setting(
        DEFAULT_BENCHMARKS,
        position=4,
        description="of the data set: open_book, closed_book, table_qa, rtl_completion; in "
        f"upstream's files, as NAME=DIR: {', '.join(UPSTREAM)}; your own: NAME=FILE.jsonl, or "
        "NAME_layout=DIR in one of these layouts; lm-eval tasks: NAME, or NAME=DIR with their YAML",
        affects_output=False,  # what they hold is among the inputs
    )
    limit: int | None = setting(
        None, position=5, ge=1, description="problems of each benchmark (default: all)"
    )
    samples_per_problem: int = setting(
        4, position=6, ge=1, le=1000, description="answers drawn per problem for pass@k"
    )
    ks: tuple[int, ...] = setting((1, 4), position=7, description="the k of pass@k")
    temperature: float = setting(
        0.6, position=8, ge=0, le=2, description="of answers drawn for pass@k"
    )
    seed: int = setting(0, position=9, ge=0, description="of sampling, choice and intervals")
    batch_size: int = setting(32, position=10, ge=1, le=4096, description="prompts at a time")
    dtype: Literal["auto", "bfloat16", "float32"] = setting(
        "auto", position=11, description="weights' type; auto takes what is fast on this machine"
    )
    workers: int = setting(
        0,
        position=12,
        ge=0,
        le=1024,
        description="processor threads of a model, 0 for all cores",
        affects_output=False,
    )
    max_answer_tokens: int | None = setting(
        None,
        position=13,
        ge=1,
        le=131_072,
        description="most tokens of an answer (default: each benchmark's own; raise it for models "
        "that reason first)",
    )
    engine: Engine = setting(
        "transformers", position=14, description="what computes the answers of model folders"
    )
    endpoint_api: Api = setting(
        "chat",
        position=15,
        description="form of endpoints: chat; completions of plain text; or chat_fixed for models "
        "that take no temperature and count max_completion_tokens",
    )
    api_key_env: tuple[str, ...] = setting(
        (),
        position=16,
        description="environment variable that holds the endpoints' key; LABEL=VARIABLE for one",
        affects_output=False,
    )
    concurrency: int = setting(
        4, position=17, ge=1, le=256, description="requests at a time", affects_output=False
    )
    request_timeout_s: int = setting(
        300, position=18, ge=1, le=7200, description="seconds for an answer", affects_output=False
    )
    request_tries: int = setting(
        5,
        position=19,
        ge=1,
        le=20,
        description="tries of a request that fails in passing (lost connection, 429, 5xx)",
        affects_output=False,
    )
    choice: Choosing = setting(
        "generation",
        position=20,
        description="how questions with choices are asked: generation of an answer, or likelihood "
        "of each choice, which needs model folders",
    )

    @field_validator("benchmarks")
    @classmethod
    def _each_once(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        names = [parse_wanted(text).name for text in value]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice or not value:
            raise ValueError(f"{twice[0]} is there twice" if twice else "name at least one")
        return value

    @field_validator("ks")
    @classmethod
    def _positive(cls, value: tuple[int, ...]) -> tuple[int, ...]:
        if not value or min(value) < 1:
            raise ValueError("each k of pass@k is 1 or more")
        return tuple(sorted({1, *value}))

    def sampling(self, *, chat: bool = True) -> Sampling:
        """How answers are drawn, from models in chat form or in plain text."""
        return Sampling(
            samples=self.samples_per_problem,
            ks=self.ks,
            temperature=self.temperature,
            seed=self.seed,
            max_answer_tokens=self.max_answer_tokens,
            chat=chat,
        )

    def calling(self, label: str) -> Calling:
        """How the endpoint of a model is asked; its own key's variable before the common one."""
        pairs = (text.rpartition("=") for text in self.api_key_env)
        by_label = {name: variable for name, _, variable in pairs}
        return Calling(
            api=self.endpoint_api,
            api_key_env=by_label.get(label, by_label.get("", "")),
            concurrency=self.concurrency,
            timeout_s=self.request_timeout_s,
            max_tries=self.request_tries,
        )
