"""The canonical row: one flat record per training or test example.

`rows/*.parquet` holds these once; every trainer's format is a thin view over them. All columns
are strings or integers and `ground_truth` is always a JSON string, because mixed types break
`datasets` and verl when files are joined.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from corpus.schema import STRINGS

ROWS: Final = pa.schema(
    [
        ("row_id", pa.string()),  # derived from the content below
        ("kind", pa.string()),  # cpt | sft | rlvr | test
        ("split", pa.string()),  # train | validation | test
        # open_book: passage in the prompt, document held out; closed_book: fact of a training
        # document in an unseen form; skill: RTL and procedural; cpt: plain text
        ("setting", pa.string()),
        ("task", pa.string()),  # kind of question, e.g. table_lookup, cloze_number, rtl_completion
        ("difficulty", pa.int32()),  # 1 easy .. 5 hard
        ("prompt_json", pa.string()),  # list of {"role", "content"}; cpt: [] and text in `answer`
        ("answer", pa.string()),  # reference answer as the model should write it
        ("rationale", pa.string()),  # program or steps that give it, "" when none
        ("wrong", STRINGS),  # near misses that its verifier refused
        ("verifier", pa.string()),  # kind in evaluation.verifiers, "" for cpt
        ("ground_truth", pa.string()),  # JSON for that verifier, "{}" for cpt
        ("fact_id", pa.string()),  # same fact in several forms share it, "" when none
        ("form", pa.string()),  # which phrasing; closed-book tests use forms that training lacks
        ("group_id", pa.string()),  # what was kept on one side of the split
        ("doc_ids", STRINGS),
        ("element_ids", STRINGS),
        ("chunk_ids", STRINGS),
        ("entity_ids", STRINGS),
        ("table_id", pa.string()),
        ("module_id", pa.string()),
        ("page", pa.int32()),
        ("licence", pa.string()),
        ("generator", pa.string()),
        ("generator_version", pa.string()),
        ("seed", pa.int64()),
        ("tokens", pa.int32()),
    ]
)
