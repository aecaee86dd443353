"""Data for a page's own script: JSON inside a script element, which hostile texts cannot leave."""

from __future__ import annotations

import json
from typing import Any


def embed_json(value: Any) -> str:
    """JSON that is safe inside a script element: no `<`, `>`, `&` or line separators in it."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), sort_keys=True)
    for char in "<>&\u2028\u2029":
        text = text.replace(char, f"\\u{ord(char):04x}")
    return text.encode("utf-8", "replace").decode("utf-8")
