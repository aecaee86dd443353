"""Columns of the corpus tables: what ingest writes and every later stage reads.

Conventions: boxes are `[x0, y0, x1, y1]` in PDF points, origin top left of the page as shown
(rotation applied); pages count from 1 (a format without pages has page 1); `order` is reading
order inside a document, from 0; ids are content-derived (`workspace.ids`). Rows are sorted by
(doc_id, page, order) so that the same input gives the same files.

Element categories are unstructured's: Title, NarrativeText, ListItem, Table, Image,
FigureCaption, Formula, CodeSnippet, Header, Footer, PageNumber, Address, EmailAddress,
UncategorizedText.
"""

from __future__ import annotations

import json
from typing import Final

import pyarrow as pa

BOX: Final = pa.list_(pa.float32())
STRINGS: Final = pa.list_(pa.string())
# The layout of `datasets.Image`: encoded bytes, or a path.
IMAGE: Final = pa.struct([("bytes", pa.binary()), ("path", pa.string())])


def _with_images(schema: pa.Schema, *columns: str) -> pa.Schema:
    """Mark `columns` so that `datasets.load_dataset("parquet", ...)` decodes them."""
    features: dict[str, dict[str, object]] = {name: {"_type": "Image"} for name in columns}
    for field in schema:
        if field.name not in features:
            features[field.name] = _feature(field.type)
    ordered = {field.name: features[field.name] for field in schema}
    info = json.dumps({"info": {"features": ordered}})
    return schema.with_metadata({"huggingface": info})


def _feature(kind: pa.DataType) -> dict[str, object]:
    if pa.types.is_list(kind):
        return {"_type": "List", "feature": _feature(kind.value_type)}
    name = {"float": "float32", "double": "float64"}.get(str(kind), str(kind))
    return {"_type": "Value", "dtype": name}


DOCUMENTS: Final = pa.schema(
    [
        ("doc_id", pa.string()),  # SHA-256 of the bytes
        ("uri", pa.string()),  # first of uris
        ("uris", STRINGS),  # every place with these bytes: files first, then members of others
        ("parent_id", pa.string()),  # document that uri is a member of, "" for a file of its own
        ("name", pa.string()),
        ("format", pa.string()),  # pdf docx pptx xlsx html md txt eml verilog ...
        ("bytes", pa.int64()),
        ("title", pa.string()),
        ("language", pa.string()),  # ISO 639-1, "" when unknown
        ("licence", pa.string()),  # as stated in the document or given, "" when unknown
        ("n_pages", pa.int32()),
        ("n_elements", pa.int32()),
        ("n_tables", pa.int32()),
        ("n_images", pa.int32()),
        ("n_modules", pa.int32()),
        ("parser", pa.string()),  # backend and version, e.g. "pymupdf 2.0"
        ("status", pa.string()),  # ok | partial (some pages quarantined)
        ("tags", STRINGS),  # as given in a source list
        ("metadata_json", pa.string()),  # what the format states: author, dates, ...
    ]
)

PAGES: Final = _with_images(
    pa.schema(
        [
            ("doc_id", pa.string()),
            ("page", pa.int32()),
            ("width_pt", pa.float32()),
            ("height_pt", pa.float32()),
            ("rotation", pa.int32()),  # degrees, as stored; image and boxes are upright
            ("text", pa.string()),  # in reading order
            ("text_source", pa.string()),  # native | ocr | none
            ("image", IMAGE),  # PNG of the page, null when not rendered
            ("image_dpi", pa.int32()),
            ("n_elements", pa.int32()),
            ("flags", STRINGS),  # e.g. low_resolution, garbled_text, no_text, ocr
            # equal for pages of equal words and pictures; "" for an empty page
            ("content_hash", pa.string()),
        ]
    ),
    "image",
)

ELEMENTS: Final = pa.schema(
    [
        ("element_id", pa.string()),
        ("doc_id", pa.string()),
        ("page", pa.int32()),
        ("order", pa.int32()),
        ("category", pa.string()),
        ("text", pa.string()),
        ("bbox_pt", BOX),  # null where the format has no geometry
        ("level", pa.int32()),  # heading depth from 1, 0 for the rest
        ("section_path", STRINGS),  # titles above it, outermost first
        ("parent_id", pa.string()),  # nearest Title above it, "" at the top
        ("metadata_json", pa.string()),
    ]
)

CELL: Final = pa.struct(
    [
        ("row", pa.int32()),
        ("col", pa.int32()),
        ("row_span", pa.int32()),
        ("col_span", pa.int32()),
        ("is_header", pa.bool_()),
        ("text", pa.string()),
        ("page", pa.int32()),  # that `bbox_pt` is on; a table may go over several
        ("bbox_pt", BOX),
    ]
)

TABLES: Final = pa.schema(
    [
        ("table_id", pa.string()),
        ("element_id", pa.string()),  # the Table element
        ("doc_id", pa.string()),
        ("page", pa.int32()),  # first page
        ("pages", pa.list_(pa.int32())),
        ("order", pa.int32()),
        ("caption", pa.string()),
        ("n_rows", pa.int32()),
        ("n_cols", pa.int32()),
        ("cells", pa.list_(CELL)),  # sorted by (row, col); spanned positions have no cell
        ("html", pa.string()),
        ("markdown", pa.string()),
        # JSON list, one per column: {"name", "kind": "number"|"text", "unit", "values": [...]}
        # numbers as floats (null where a cell is empty), body rows only.
        ("columns_json", pa.string()),
        ("bbox_pt", BOX),  # of its part on the first page
        ("section_path", STRINGS),
    ]
)

IMAGES: Final = _with_images(
    pa.schema(
        [
            ("image_id", pa.string()),
            ("element_id", pa.string()),  # the Image element
            ("doc_id", pa.string()),
            ("page", pa.int32()),
            ("order", pa.int32()),
            ("caption", pa.string()),
            ("bbox_pt", BOX),
            ("width_px", pa.int32()),
            ("height_px", pa.int32()),
            ("sha256", pa.string()),  # of the encoded bytes: equal for a repeated logo
            ("phash", pa.string()),  # perceptual (corpus.picture_hash), "" for a flat picture
            ("repeated_on", pa.list_(pa.int32())),  # further pages with this logo in the margin
            ("image", IMAGE),
        ]
    ),
    "image",
)

CHUNKS: Final = pa.schema(
    [
        ("chunk_id", pa.string()),
        ("doc_id", pa.string()),
        ("order", pa.int32()),
        ("kind", pa.string()),  # text | table | code
        ("text", pa.string()),
        ("tokens", pa.int32()),  # by the chunker's tokenizer
        ("pages", pa.list_(pa.int32())),
        ("element_ids", STRINGS),
        ("section_path", STRINGS),
    ]
)

SUMMARIES: Final = pa.schema(
    [
        ("summary_id", pa.string()),
        ("doc_id", pa.string()),
        ("level", pa.string()),  # document | section | table | figure
        ("target_id", pa.string()),  # doc_id, Title element_id, table_id or image_id
        ("order", pa.int32()),
        ("title", pa.string()),
        ("text", pa.string()),
        ("method", pa.string()),
        ("source_element_ids", STRINGS),
    ]
)

PORT: Final = pa.struct(
    [
        ("name", pa.string()),
        ("direction", pa.string()),  # input | output | inout
        ("width", pa.int32()),  # bits with default parameters, 0 when not constant
        ("type", pa.string()),  # as written, e.g. "logic [7:0]"
        ("comment", pa.string()),
        ("line", pa.int32()),
    ]
)
PARAMETER: Final = pa.struct(
    [
        ("name", pa.string()),
        ("value", pa.string()),  # default, as written
        ("is_local", pa.bool_()),
        ("comment", pa.string()),
        ("line", pa.int32()),
    ]
)
INSTANCE: Final = pa.struct([("module", pa.string()), ("name", pa.string()), ("line", pa.int32())])

MODULES: Final = pa.schema(
    [
        ("module_id", pa.string()),
        ("element_id", pa.string()),  # the CodeSnippet element that holds its source
        ("doc_id", pa.string()),
        ("order", pa.int32()),
        ("name", pa.string()),
        ("language", pa.string()),  # verilog | systemverilog
        ("comment", pa.string()),  # header comment above or right inside it
        ("ports", pa.list_(PORT)),
        ("parameters", pa.list_(PARAMETER)),
        ("instances", pa.list_(INSTANCE)),
        ("source", pa.string()),  # with the file's directives that it needs
        ("line_start", pa.int32()),
        ("line_end", pa.int32()),
    ]
)

QUARANTINE: Final = pa.schema(
    [
        ("doc_id", pa.string()),  # "" when the bytes could not be read
        ("uri", pa.string()),
        ("page", pa.int32()),  # 0 = the whole document
        ("stage", pa.string()),  # open | parse | render | tables | summarise ...
        ("reason", pa.string()),  # a code of corpus.quarantine.REASONS
        ("detail", pa.string()),  # the evidence: what the parser said, the end of its output
        ("bytes", pa.int64()),
        ("retry", pa.bool_()),  # a plain run may try it again (corpus.quarantine)
    ]
)

FINGERPRINTS: Final = pa.schema(  # one row a document, see corpus.fingerprints
    [
        ("doc_id", pa.string()),
        ("n_words", pa.int32()),
        ("words_hash", pa.string()),  # of all words in order, numbers masked
        ("text_hash", pa.string()),  # of all words in order
        ("signature", pa.binary()),  # MinHash, 128 uint32, numbers masked
        ("plain_signature", pa.binary()),  # the same with the numbers
        ("places", pa.binary()),  # pairs of uint64: place, number found there
    ]
)

# Made from the other tables when the corpus is published. A group has at least two members, sorted
# by (doc_id, page); `similarity` and `number_agreement` are to the group's representative.
DUPLICATES: Final = pa.schema(
    [
        ("group_id", pa.string()),
        ("kind", pa.string()),  # exact | near | variant | page | image (corpus.duplicates)
        ("n_members", pa.int32()),
        ("doc_id", pa.string()),
        ("uri", pa.string()),  # of an exact copy, "" for other kinds
        ("page", pa.int32()),  # of a page or picture, 0 for a document
        ("image_id", pa.string()),  # of a picture, "" for other kinds
        ("similarity", pa.float32()),  # of the words without numbers, or of the pixels; 0 to 1
        ("number_agreement", pa.float32()),  # share of equal numbers at common places
        ("is_representative", pa.bool_()),  # the first uri, the longest text, the first page
    ]
)

TABLES_BY_NAME: Final[dict[str, pa.Schema]] = {
    "documents": DOCUMENTS,
    "pages": PAGES,
    "elements": ELEMENTS,
    "tables": TABLES,
    "images": IMAGES,
    "chunks": CHUNKS,
    "summaries": SUMMARIES,
    "modules": MODULES,
    "fingerprints": FINGERPRINTS,
    "quarantine": QUARANTINE,
    "duplicates": DUPLICATES,
}
# Not merged document by document.
DERIVED_TABLES: Final = frozenset({"duplicates"})
