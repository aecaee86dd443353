"""The corpus browser as a folder without a server, and its command line."""

from __future__ import annotations

from pathlib import Path

import pytest
from browser_client import ask, listed, piece_in
from starlette.testclient import TestClient

from corpus.browser.__main__ import main


@pytest.fixture(scope="module")
def workspace(hostile_workspace: Path) -> Path:
    return hostile_workspace


@pytest.fixture(scope="module")
def exported(workspace: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("export") / "folder"
    assert main(["--workspace", str(workspace), "--static", str(target)]) == 0
    return target


def test_the_folder_holds_the_same_pieces_as_the_server(exported: Path, client: TestClient) -> None:
    for document in listed(client).values():
        folder = exported / "data" / document["doc_id"]
        assert folder.is_dir() == bool(document["kept"])
        for path in sorted(folder.glob("*.js")):
            name = path.stem
            assert piece_in(exported, f"{document['doc_id']}/{name}") == ask(
                client, f"/data/{document['doc_id']}/{name}.json"
            )
    names = {path.suffix for path in exported.rglob("*") if path.is_file()}
    assert names <= {".html", ".js", ".css", ".svg", ".png", ".json", ""}
    assert "<" not in (exported / "data/documents-0.js").read_text()


def test_a_folder_of_chosen_documents_tells_of_no_others(tmp_path: Path, workspace: Path) -> None:
    target = tmp_path / "out"
    assert main(["--workspace", str(workspace), "--static", str(target), "--include", "*.v"]) == 0
    assert [row["name"] for row in piece_in(target, "documents-0")] == ["counter.v"]
    written = "".join(
        path.read_text("utf-8", "replace") for path in (target / "data").rglob("*.js")
    )
    assert "manual.pdf" not in written and "zebrafish" not in written
    assert main(["--workspace", str(workspace), "--static", str(target), "--include", "*.pdf"]) == 0
    assert "counter.v" not in (target / "data/documents-0.js").read_text()  # written anew, whole


def test_a_folder_with_other_files_is_not_touched(
    tmp_path: Path, workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "precious.txt").write_text("mine")
    assert main(["--workspace", str(workspace), "--static", str(tmp_path)]) == 1
    assert "other files" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["precious.txt"]
    target = tmp_path / "none"
    assert main(["--workspace", str(workspace), "--static", str(target), "--include", "*.zip"]) == 1
    assert not target.exists()


@pytest.mark.parametrize(
    "arguments",
    [[], ["--workspace", "w", "--serve", "70000"], ["--workspace", "w", "--serve", "x"],
     ["--workspace", "w", "--serve", "1", "--static", "s"]],
)  # fmt: skip
def test_wrong_usage_ends_with_2(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
