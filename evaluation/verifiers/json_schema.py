"""`json_schema`: the answer is JSON of a given form.

Ground truth `{"schema": {...}}`, a JSON Schema (2020-12 unless `$schema` names another draft). The
answer's last code block, else its final answer, must be one JSON value, without NaN and without a
key twice in an object. Values are fixed by the schema too: `const`, `enum`, `minimum`.

Work is bounded: patterns take linear time (`patterns`), and a check of more than `MAX_STEPS`
keywords ends as `limit:cpu`. Not covered: references to other files, `patternProperties`, and
`format`, which is not checked.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Any, Final, NoReturn

from evaluation.verifiers import ground_truth as truths
from evaluation.verifiers.extraction import code_or_answer
from evaluation.verifiers.patterns import compile_pattern, encodable
from evaluation.verifiers.verdict import Verdict
from workspace.errors import UserError

MAX_STEPS: Final = 50_000
_REFUSED: Final = ("patternProperties", "$id", "$dynamicRef", "$recursiveRef")

_steps_left: ContextVar[list[int]] = ContextVar("_steps_left")


class _TooMuch(Exception):
    """The check took more than `MAX_STEPS`."""


class _Ambiguous(ValueError):
    """An object names a key twice."""


def verify(ground_truth: str, answer: str) -> Verdict:
    """Verdict of `answer`. Raises `UserError` when the ground truth has another shape."""
    validator = _validator(ground_truth)
    text = code_or_answer(answer)
    if isinstance(text, Verdict):
        return text
    try:
        value = json.loads(
            text, parse_constant=_refuse_constant, object_pairs_hook=_object_of_distinct_keys
        )
    except _Ambiguous as error:
        return Verdict(0.0, "rejected:ambiguous", str(error))
    except (ValueError, RecursionError) as error:
        return Verdict(0.0, "no_answer", f"no JSON: {error}"[:200])
    return _check(validator, value)


def _check(validator: Any, value: object) -> Verdict:
    token = _steps_left.set([MAX_STEPS])
    try:
        error = next(validator.iter_errors(value), None)
    except _TooMuch:
        return Verdict(0.0, "limit:cpu", f"more than {MAX_STEPS} steps")
    except RecursionError:
        return Verdict(0.0, "limit:cpu", "nested too deeply")
    finally:
        _steps_left.reset(token)
    if error is None:
        return Verdict(1.0, "pass")
    return Verdict(0.0, "mismatch", f"{error.json_path}: {error.message}"[:200])


@functools.lru_cache(256)
def _validator(ground_truth: str) -> Any:
    from jsonschema import Draft202012Validator
    from jsonschema.exceptions import SchemaError
    from jsonschema.validators import validator_for
    from referencing import Registry

    schema = truths.load("json_schema", ground_truth).get("schema")
    if not isinstance(schema, dict) or not schema:
        truths.wrong("json_schema", "schema", "an object that is not empty", schema)
    references = _check_keywords(schema)
    base = validator_for(schema, default=Draft202012Validator)
    try:
        base.check_schema(schema)
    except SchemaError as error:
        raise UserError(f"ground truth of a json_schema row: {error.message}") from error
    _check_references(schema, references)
    # An empty registry: jsonschema's own would fetch what a reference names from the network.
    return _bounded(base)(schema, registry=Registry())


def _check_references(schema: dict[str, Any], references: list[str]) -> None:
    from referencing import Registry, Resource
    from referencing.exceptions import Unresolvable
    from referencing.jsonschema import DRAFT202012

    root = Resource.from_contents(schema, default_specification=DRAFT202012)
    resolver = Registry().resolver_with_root(root)
    for reference in references:
        try:
            resolver.lookup(reference)
        except Unresolvable:
            truths.wrong("json_schema", "$ref", "one of the schema's parts", reference)


def _check_keywords(schema: object) -> list[str]:
    """Refuse what is not covered, and patterns that RE2 does not take; the references found."""
    references: list[str] = []
    waiting = [schema]
    while waiting:
        part = waiting.pop()
        if isinstance(part, list):
            waiting += part
        elif isinstance(part, dict):
            waiting += part.values()
            found = next((word for word in _REFUSED if word in part), None)
            if found:
                truths.wrong("json_schema", "schema", f"one without {found!r}", part)
            reference = part.get("$ref")
            if isinstance(reference, str):
                references.append(reference)
            if isinstance(part.get("pattern"), str):
                compile_pattern(part["pattern"])
    return references


@functools.cache
def _bounded(base: Any) -> Any:
    """`base` with counted steps, linear patterns and linear uniqueness."""
    from jsonschema.validators import extend

    own = {"pattern": _pattern, "uniqueItems": _unique_items}
    keywords = {**base.VALIDATORS, **own}
    return extend(base, {word: _counted(check) for word, check in keywords.items()})


def _counted(check: Callable[..., Any]) -> Callable[..., Iterator[Any]]:
    def counting(validator: Any, wanted: Any, value: Any, schema: Any) -> Iterator[Any]:
        left = _steps_left.get()
        left[0] -= 1
        if left[0] < 0:
            raise _TooMuch
        yield from check(validator, wanted, value, schema) or ()

    return counting


def _pattern(validator: Any, wanted: Any, value: Any, schema: Any) -> Iterator[Any]:
    from jsonschema.exceptions import ValidationError

    if isinstance(value, str) and not compile_pattern(wanted).search(encodable(value)):
        yield ValidationError(f"{value[:80]!r} does not match {wanted!r}")


def _unique_items(validator: Any, wanted: Any, value: Any, schema: Any) -> Iterator[Any]:
    from jsonschema.exceptions import ValidationError

    if wanted and isinstance(value, list):
        # 1 and 1.0 are the same number in JSON, true and 1 are not the same value.
        seen = [json.dumps(_comparable(item), sort_keys=True) for item in value]
        if len(set(seen)) < len(seen):
            yield ValidationError("an item stands there twice")


def _comparable(value: Any) -> Any:
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, list):
        return [_comparable(item) for item in value]
    if isinstance(value, dict):
        return {key: _comparable(item) for key, item in value.items()}
    return value


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")


def _object_of_distinct_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise _Ambiguous("an object names a key twice")
    return found
