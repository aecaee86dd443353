"""Base of every stage's configuration.

One frozen pydantic model per stage, on top of the module that reads it. The same model is the
Prefect form (ordered by `position`), the command line's flags and the YAML file. Unknown keys are
errors. `fingerprint()` covers only the fields that change the output, so that a run with other
`workers` or another folder is recognised as the same work.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any, Self

import yaml
from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError
from pydantic_core import PydanticUndefined

from workspace.errors import UserError


def setting(
    default: Any = PydanticUndefined,
    *,
    position: int,
    description: str,
    affects_output: bool = True,
    positional: bool = False,
    flag: bool = True,
    **field: Any,
) -> Any:
    """A pydantic field with its place in forms and help texts.

    `affects_output=False` keeps it out of the fingerprint (workers, paths, verbosity);
    `positional=True` makes it a positional argument on the command line; `flag=False` keeps it off
    the command line, for what the program itself fills in. Bounds (`ge`, `le`, `default_factory`,
    ...) pass through to `pydantic.Field`.
    """
    extra: dict[str, JsonValue] = {
        "position": position,
        "affects_output": affects_output,
        "positional": positional,
        "flag": flag,
    }
    if "default_factory" in field:
        return Field(description=description, json_schema_extra=extra, **field)
    return Field(default, description=description, json_schema_extra=extra, **field)


class StageConfig(BaseModel):
    """Frozen, typed, refuses unknown keys."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True)

    @classmethod
    def from_yaml(cls, path: Path) -> Self:
        """Read a YAML file. Raises `UserError` naming the file and each wrong field."""
        return cls.parse(read_yaml(path), origin=str(path))

    @classmethod
    def parse(cls, values: dict[str, Any], *, origin: str) -> Self:
        """Validate `values`; `origin` says where they came from in the error's text."""
        try:
            return cls.model_validate(values)
        except ValidationError as error:
            raise UserError(describe_validation_error(error, origin)) from error

    def output_settings(self) -> dict[str, Any]:
        """The JSON form of the fields that change the output."""
        skipped = {
            name
            for name, field in type(self).model_fields.items()
            if isinstance(field.json_schema_extra, dict)
            and field.json_schema_extra.get("affects_output") is False
        }
        settings = self.model_dump(mode="json", exclude=skipped)
        for name in settings:
            value = getattr(self, name)
            if isinstance(value, StageConfig):
                settings[name] = value.output_settings()
        return settings

    def fingerprint(self) -> str:
        """Hash (16 hex digits) of `output_settings`."""
        return hash_json(self.output_settings())


def read_yaml(path: Path) -> dict[str, Any]:
    """A YAML file as a mapping. Raises `UserError` when it is missing, broken or not a mapping."""
    try:
        values = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"config file {path}: {error.strerror}") from error
    except yaml.YAMLError as error:
        raise UserError(f"config file {path} is not valid YAML: {error}") from error
    if values is None:
        return {}
    if not isinstance(values, dict):
        raise UserError(f"config file {path} must hold `name: value` lines, not a list or a text")
    return values


def describe_validation_error(error: ValidationError, origin: str) -> str:
    """One line per wrong field, each naming the field, the fault and the value."""
    lines = [f"{origin}: {error.error_count()} setting(s) refused"]
    for item in error.errors(include_url=False):
        where = ".".join(str(part) for part in item["loc"]) or "(whole)"
        lines.append(f"  {where}: {item['msg']} (got {item['input']!r})")
    return "\n".join(lines)


def hash_json(value: Any) -> str:
    """First 16 hex digits of the SHA-256 of the canonical JSON of `value`."""
    canonical = json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()[:16]
