"""The graph of the sample corpus, built once for a module's tests."""

from __future__ import annotations

import pytest
from sample_corpus import SAMPLE, write_corpus

from workspace.paths import Workspace


@pytest.fixture(scope="module")
def sample_graph(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    """The graph of the sample corpus."""
    from knowledge_graph.build import GraphConfig, plan, process, publish
    from workspace import stage

    workspace = write_corpus(tmp_path_factory.mktemp("graph"), SAMPLE)
    stage.run(GraphConfig(workspace=workspace.root, min_mentions=1), plan, process, publish)
    return workspace
