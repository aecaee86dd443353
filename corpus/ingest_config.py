"""The settings of ingest, and what follows from them.

One model for the command's flags, the form in the Prefect UI and the YAML file.
"""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, Literal, Self

from pydantic import field_validator, model_validator

from corpus.parsed import ParseOptions
from corpus.parsers import ocr_setup as ocr
from corpus.redaction import RedactionKind
from corpus.tokenizers import ESTIMATE, tokenizer_file
from workspace.config import StageConfig, hash_json, setting
from workspace.ids import hash_file
from workspace.llm import LlmConfig
from workspace.paths import Workspace

# Raised when documents come to other rows than before.
VERSION: Final = "4"
# Settings that are read when the corpus is published, not when documents are parsed.
PUBLISH_ONLY: Final = frozenset({"near_duplicate_similarity"})


class IngestConfig(StageConfig):
    """Settings of the ingest stage."""

    # What to ingest.
    sources: list[str] = setting(
        default_factory=list,
        position=0,
        positional=True,
        affects_output=False,  # the files that they name are in the key
        description="Files, folders, globs, URLs (s3://, https://, ...) or @LISTs to ingest",
    )
    workspace: Path = setting(position=1, affects_output=False, description="Folder of all stages")
    source_list: list[Path] = setting(
        default_factory=list,
        position=2,
        affects_output=False,
        description="CSV, TSV or JSON lines with a column uri or path, and title, licence, tags, "
        "password as wanted; other columns become metadata",
    )
    include: list[str] = setting(
        default_factory=list,
        position=3,
        affects_output=False,
        description="Take only files whose name or path inside the source matches a pattern",
    )
    exclude: list[str] = setting(
        default_factory=list,
        position=4,
        affects_output=False,
        description="Leave out files whose name or path inside the source matches a pattern",
    )
    passwords: Path | None = setting(
        None,
        position=5,
        affects_output=False,
        description="File with a password a line, tried on encrypted PDF and Office files and "
        "archives; keep it readable by yourself alone",
    )
    max_file_mb: int = setting(
        512,
        position=6,
        ge=1,
        le=16384,
        affects_output=False,
        description="Larger files go to quarantine, in MB",
    )
    archive_depth: int = setting(
        3,
        position=7,
        ge=1,
        le=8,
        affects_output=False,  # what they let in is in the key
        description="How many archives and mails deep a document may lie",
    )
    archive_max_members: int = setting(
        10_000,
        position=8,
        ge=1,
        le=1_000_000,
        affects_output=False,
        description="Most files in a given archive, at all depths together",
    )
    archive_max_mb: int = setting(
        8192,
        position=9,
        ge=1,
        le=1_048_576,
        affects_output=False,
        description="Most MB that a given archive may unpack to, at all depths together",
    )

    # How documents are parsed.
    pdf_backend: Literal["auto", "pymupdf", "pypdfium2"] = setting(
        "auto",
        position=10,
        description="Library that reads PDFs; auto takes pymupdf where it is installed. pypdfium2 "
        "has a permissive licence but finds no tables",
    )
    page_dpi: int = setting(
        100, position=11, ge=36, le=600, description="Resolution of page images"
    )
    max_page_pixels: int = setting(
        40_000_000,
        position=12,
        ge=100_000,
        le=400_000_000,
        description="Larger pages are rendered at a lower resolution",
    )
    table_detection: Literal["fast", "routed", "full"] = setting(
        "routed",
        position=13,
        description="fast: ruled tables only; routed: a layout model on pages that show signs of a "
        "table; full: the model on every page (0.4 s of CPU each)",
    )
    ocr: Literal["auto", "off", "force"] = setting(
        "auto",
        position=14,
        description="auto: read pages by OCR whose text is missing, garbled or from a poor old "
        "scan; off: never; force: every page",
    )
    ocr_engine: Literal["auto", "both", "tesseract", "rapidocr", "none"] = setting(
        "auto",
        position=15,
        description="both: Tesseract, and RapidOCR where it is not sure; auto takes what is "
        "installed. With none, pages in need of OCR are flagged ocr_unavailable",
    )
    ocr_languages: list[str] = setting(
        default_factory=lambda: ["eng"],
        position=16,
        min_length=1,
        max_length=8,
        description="Tesseract's names of the languages to expect, e.g. eng deu chi_sim",
    )
    ocr_dpi: int = setting(
        200, position=17, ge=100, le=600, description="Resolution at which OCR sees PDF pages"
    )
    redact: list[RedactionKind] = setting(
        default_factory=list,
        position=18,
        description="Personal data to replace by placeholders: email, phone, iban, credit_card, ip",
    )

    # What is made of their text.
    chunk_tokens: int = setting(
        400, position=19, ge=32, le=8192, description="Most tokens in a chunk"
    )
    chunk_tokenizer: str = setting(
        ESTIMATE,
        position=20,
        min_length=1,
        description="What counts a chunk's tokens: `words` for an estimate without a model, or a "
        "folder with a tokenizer.json for that model's exact count",
    )
    chunk_overlap: int = setting(
        0,
        position=21,
        ge=0,
        le=4096,
        description="Tokens of the end of the chunk before that a text chunk begins with; at most "
        "half of chunk_tokens",
    )
    llm: LlmConfig | None = setting(
        None,
        position=22,
        description="Endpoint that writes the summaries of documents and sections; without one "
        "they are sentences of the document",
    )
    near_duplicate_similarity: float = setting(
        0.75,
        position=23,
        ge=0.6,
        le=1.0,
        description="Least share of equal word sequences in near duplicates and variants; numbers "
        "are left out of it and tell the two apart",
    )

    # How the run goes.
    sync: bool = setting(
        False,
        position=24,
        affects_output=False,
        description="Make the corpus mirror the given sources: documents of earlier runs that are "
        "not among them go. Without it a run adds to what the workspace holds",
    )
    retry_quarantined: bool = setting(
        False,
        position=25,
        affects_output=False,
        description="Try everything in quarantine again, also what a plain run leaves alone",
    )
    max_tries: int = setting(
        3,
        position=26,
        ge=1,
        le=100,
        affects_output=False,
        description="How often runs try a document that takes too long or too much memory",
    )
    workers: int = setting(
        default_factory=lambda: os.cpu_count() or 1,
        position=27,
        ge=1,
        le=512,
        affects_output=False,
        description="Parser processes side by side",
    )
    cluster: str = setting(
        "local",
        position=28,
        affects_output=False,
        description="Where shards run: local, slurm, or the path of a cluster file like "
        "flows/clusters/slurm.yaml",
    )
    page_timeout_s: float = setting(
        60.0,
        position=29,
        gt=0,
        le=3600,
        affects_output=False,
        description="CPU seconds that a page may take before it is given up",
    )
    document_timeout_s: float = setting(
        300.0,
        position=30,
        gt=0,
        le=86400,
        affects_output=False,
        description="CPU seconds for a document that is not read page by page",
    )
    memory_limit_mb: int = setting(
        4096,
        position=31,
        ge=1024,
        le=131072,
        affects_output=False,
        description="Address space of a parser process",
    )

    @model_validator(mode="after")
    def _require_sources(self) -> Self:
        if not self.sources and not self.source_list:
            raise ValueError("sources: name at least one file, folder, pattern, URL or source_list")
        return self

    @field_validator("pdf_backend", mode="after")
    @classmethod
    def _resolve_backend(cls, value: str) -> str:
        """The choice is part of the fingerprint, so `auto` is settled before it is taken."""
        if value == "auto":
            return "pymupdf" if find_spec("pymupdf") else "pypdfium2"
        if find_spec(value) is None:
            raise ValueError(f"{value} is not installed: pip install {value}")
        return value

    @field_validator("ocr_engine", mode="after")
    @classmethod
    def _resolve_engine(cls, value: str) -> str:
        """Settled before the fingerprint is taken: other engines read other text."""
        if value == "auto":
            return ocr.find_engines()
        if missing := ocr.missing_engines(value):
            cures = "; ".join(f"{name}: {ocr.CURES[name]}" for name in missing)
            raise ValueError(f"not installed: {cures}")
        return value

    @model_validator(mode="after")
    def _check_ocr(self) -> Self:
        if self.ocr == "force" and self.ocr_engine == "none":
            cures = ", or ".join(ocr.CURES.values())
            raise ValueError(f"ocr=force needs an OCR engine, and none is in use: {cures}")
        if self.ocr != "off" and (fault := ocr.language_fault(self.ocr_engine, self.ocr_languages)):
            raise ValueError(f"ocr_languages: {fault}")
        return self

    @field_validator("redact", mode="after")
    @classmethod
    def _sort_kinds(cls, value: list[RedactionKind]) -> list[RedactionKind]:
        """Their order makes no difference to the output."""
        for package in ("phonenumbers", "stdnum") if value else ():
            if find_spec(package) is None:
                raise ValueError(f"{package} is not installed: pip install 'dsm-pipeline[redact]'")
        return sorted(set(value))

    @model_validator(mode="after")
    def _check_chunks(self) -> Self:
        if self.chunk_overlap > self.chunk_tokens // 2:
            raise ValueError("chunk_overlap must be at most half of chunk_tokens")
        tokenizer_file(self.chunk_tokenizer)
        return self

    def output_settings(self) -> dict[str, Any]:
        """With the tokenizer's contents instead of its place."""
        file = tokenizer_file(self.chunk_tokenizer)
        name = ESTIMATE if file is None else f"sha256:{hash_file(file)}"
        return {**super().output_settings(), "chunk_tokenizer": name}

    def parse_options(self) -> ParseOptions:
        return ParseOptions(
            page_dpi=self.page_dpi,
            max_page_pixels=self.max_page_pixels,
            pdf_backend=self.pdf_backend,
            table_detection=self.table_detection,
            ocr=self.ocr,
            ocr_engine=self.ocr_engine,
            ocr_languages=tuple(self.ocr_languages),
            ocr_dpi=self.ocr_dpi,
        )

    def worker_setup(self, units: Path) -> dict[str, Any]:
        """What a parser process (`corpus.worker`) that writes to the folder `units` must know."""
        return {
            "units": str(units),
            "spool": str(units.with_name(f"spool-{units.name}")),
            "options": vars(self.parse_options()),
            "chunk_tokens": self.chunk_tokens,
            "chunk_overlap": self.chunk_overlap,
            "chunk_tokenizer": self.chunk_tokenizer,
            "redact": list(self.redact),
            "max_bytes": self.max_file_mb << 20,
            "memory_limit_mb": self.memory_limit_mb,
        }

    @property
    def generation(self) -> str:
        """Documents parsed under the same generation have the same rows."""
        settings = self.output_settings()
        parsing = {name: value for name, value in settings.items() if name not in PUBLISH_ONLY}
        return f"{VERSION}-{hash_json(parsing)}"

    @property
    def limits(self) -> str:
        """A document that failed may succeed under other limits; one that succeeded stays."""
        names = ("max_file_mb", "page_timeout_s", "document_timeout_s", "memory_limit_mb")
        return hash_json([getattr(self, name) for name in names])

    @property
    def identity(self) -> str:
        """Of the same run: all settings but where and with how many processes."""
        return hash_json(self.model_dump(mode="json", exclude={"workers", "workspace", "cluster"}))

    @property
    def folder(self) -> Path:
        return Workspace(self.workspace).corpus
