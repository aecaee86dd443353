"""A page's own script, the only one that may run there, and its data, which cannot leave theirs."""

from __future__ import annotations

import base64
import hashlib
import json
from typing import Any


def embed_json(value: Any) -> str:
    """JSON that is safe inside a script element: no `<`, `>`, `&` or line separators in it."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), sort_keys=True)
    for char in "<>&\u2028\u2029":
        text = text.replace(char, f"\\u{ord(char):04x}")
    return text.encode("utf-8", "replace").decode("utf-8")


def source_hash(script: str) -> str:
    """How a Content-Security-Policy names a script that may run (CSP level 3, section 2.3.1)."""
    return "sha256-" + base64.b64encode(hashlib.sha256(script.encode()).digest()).decode("ascii")
