"""The data set's card: what is in it, where it came from, what was left out, how it was checked.

In: a finished manifest (without the card) and the published rows; out: the text of README.md,
with the YAML header by which `datasets.load_dataset(folder, "<view>")` finds the files.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from training.data.rows import question_of
from training.data.views import VIEWS
from workspace.manifest import Manifest
from workspace.shards import Row

EXAMPLE_CHARS = 600
SHOWN_REJECTS = 25


def render_card(name: str, manifest: Manifest, rows: list[Row]) -> str:
    """Markdown of the card."""
    notes = manifest.notes
    return "\n".join(
        [
            *_header(notes["views"]),
            f"# {name}",
            "",
            "Questions and texts made from a document corpus and its knowledge graph by programs;",
            "no language model wrote any of it. Every answer was accepted by its own verifier; a",
            "near miss, an empty answer and an echo of the question were refused.",
            "",
            "## Rows",
            *_counts(rows),
            "",
            "Settings: `open_book` has the passage in the prompt, its test documents are held",
            "out; `closed_book` asks facts of training documents, the test in a phrasing that no",
            "training row has; `skill` is verified by simulation on held-out modules; `cpt` is",
            "plain text.",
            "",
            "## Splits",
            *_splits(notes),
            "",
            "## What a guess scores",
            *_baselines(notes["majority_baseline"]),
            "",
            "## Coverage",
            *_coverage(notes["coverage"]),
            "",
            "## Licences of the sources",
            *_licences(rows),
            "",
            "## Left out",
            *_rejects(manifest.rejects),
            "",
            "## Known limits",
            "* Phrasings come from templates: language is less varied than people's.",
            "* Answers are as right as the parsers that read the documents.",
            "* Benchmarks published elsewhere were not searched for in these rows.",
            "* Paraphrases and translations of one text are not recognised as the same.",
            "",
            "## Examples",
            *_examples(rows),
            "",
            "## Origin",
            f"* key `{manifest.key}`, code `{manifest.code_version}`, made {manifest.created}",
            *(f"* {kind} `{key}`" for kind, key in sorted(manifest.inputs.items())),
            "",
            "Settings:",
            "```json",
            json.dumps(manifest.settings, indent=1, sort_keys=True),
            "```",
            "",
        ]
    )


def _header(views: Mapping[str, int]) -> list[str]:
    lines = ["---", "configs:"]
    for view in VIEWS:
        lines += [f"- config_name: {view.name}", "  data_files:"]
        for split in ("train", "validation", "test"):
            if views[f"{view.name}/{split}"]:
                lines += [f"  - split: {split}", f"    path: views/{view.name}/{split}.parquet"]
    return [*lines, "---", ""]


def _table(head: Iterable[str], body: Iterable[Iterable[object]]) -> list[str]:
    names = list(head)
    lines = ["| " + " | ".join(names) + " |", "|" + "---|" * len(names)]
    lines += ["| " + " | ".join(_cell(value) for value in row) + " |" for row in body]
    return lines


def _cell(value: object) -> str:
    return str(value).replace("|", "\\|").replace("\n", " ")


def _counts(rows: list[Row]) -> list[str]:
    counts: Counter[tuple[str, str, str]] = Counter()
    tokens: Counter[tuple[str, str]] = Counter()
    for row in rows:
        column = row["kind"] if row["split"] == "train" else row["split"]
        counts[row["setting"], row["task"], column] += 1
        tokens[row["setting"], row["task"]] += row["tokens"]
    columns = ("sft", "rlvr", "cpt", "validation", "test")
    return _table(
        ["setting", "task", *columns, "tokens"],
        (
            [setting, task, *(counts[setting, task, column] for column in columns), total]
            for (setting, task), total in sorted(tokens.items())
        ),
    )


def _splits(notes: Mapping[str, Any]) -> list[str]:
    documents: Mapping[str, int] = notes["documents"]
    links: Mapping[str, int] = notes["links"]
    return [
        *_table(["split", "documents"], sorted(documents.items())),
        "",
        f"{links['groups']} groups; {links['equal']} joins by equal and {links['near']} by nearly "
        f"equal content. {notes['shared_units']} pieces of text stand on both sides or in very "
        "many documents and were used for nothing.",
    ]


def _baselines(baselines: Mapping[str, Mapping[str, Any]]) -> list[str]:
    return _table(
        [
            "setting/task",
            "test rows",
            "most common answer",
            "its share",
            "train's favourite scores",
        ],
        (
            [name, b["rows"], b["answer"], f"{b['share']:.2f}", f"{b['train_majority']:.2f}"]
            for name, b in sorted(baselines.items())
        ),
    )


def _coverage(coverage: Mapping[str, Mapping[str, int]]) -> list[str]:
    return _table(
        ["unit", "in the corpus", "usable", "gave a question", "in the published rows"],
        (
            [kind, c["total"], c["usable"], c["asked"], c["published"]]
            for kind, c in sorted(coverage.items())
        ),
    )


def _licences(rows: list[Row]) -> list[str]:
    counts = Counter(row["licence"] or "not stated" for row in rows)
    return _table(["licence", "rows"], counts.most_common())


def _rejects(rejects: Mapping[str, int]) -> list[str]:
    ordered = sorted(rejects.items(), key=lambda item: (-item[1], item[0]))
    rest = sum(n for _, n in ordered[SHOWN_REJECTS:])
    shown = ordered[:SHOWN_REJECTS] + ([("all other reasons", rest)] if rest else [])
    return _table(["reason", "times"], shown)


def _examples(rows: list[Row]) -> list[str]:
    lines: list[str] = []
    seen: set[str] = set()
    for row in rows:
        question = question_of(row)
        if row["task"] in seen or not question or row["split"] != "train":
            continue
        seen.add(row["task"])
        shown = question[:EXAMPLE_CHARS] + ("…" if len(question) > EXAMPLE_CHARS else "")
        fence = "~~~~"
        lines += [f"**{row['task']}** → `{row['answer']}`", fence, shown, fence, ""]
    return lines
