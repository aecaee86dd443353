"""Settings of the graph stage."""

from __future__ import annotations

from pathlib import Path
from typing import Final, Literal

from workspace.config import StageConfig, setting
from workspace.paths import Workspace

Extractor = Literal["noun_chunk", "identifier", "acronym", "sentence", "table", "rtl"]
ALL_EXTRACTORS: Final[tuple[Extractor, ...]] = (
    "noun_chunk",
    "identifier",
    "acronym",
    "sentence",
    "table",
    "rtl",
)


class GraphConfig(StageConfig):
    """Settings of the graph stage."""

    workspace: Path = setting(
        position=0, description="folder of the workspace", affects_output=False
    )
    workers: int = setting(
        1, position=1, description="processes that parse prose", affects_output=False, ge=1, le=256
    )
    extractors: tuple[Extractor, ...] = setting(
        ALL_EXTRACTORS,
        position=2,
        description="what to look for: noun_chunk and sentence need the language parser (slow), "
        "identifier, acronym, table and rtl do not",
        min_length=1,
    )
    min_mentions: int = setting(
        2,
        position=3,
        description="mentions that a plain term needs to become an entity (each longer term that "
        "contains it counts as one); names from RTL, tables and definitions need one",
        ge=1,
    )
    min_cooccurrences: int = setting(
        2, position=4, description="sentences that two entities share before it counts", ge=1
    )
    min_npmi: float = setting(
        0.15,
        position=5,
        description="association of two entities above chance (normalised pointwise mutual "
        "information) needed for a co-occurrence edge",
        ge=0.0,
        le=1.0,
    )
    max_cooccurrences: int = setting(
        20, position=6, description="co-occurrence edges kept for an entity (the strongest)", ge=0
    )
    max_community_size: int = setting(
        60, position=7, description="entities above which a community is split again", ge=2
    )
    resolution: float = setting(
        1.0, position=8, description="Leiden resolution of the coarsest level", gt=0.0, le=1000.0
    )
    explorer_entities: int = setting(
        1500,
        position=9,
        description="entities shown in the explorer page (highest ranked)",
        ge=10,
        le=20_000,
    )
    seed: int = setting(7, position=10, description="seed of clustering and layout", ge=0)

    @property
    def where(self) -> Workspace:
        return Workspace(self.workspace)
