"""Command line of a stage's configuration: every setting is a flag, `--config` reads a YAML file.

    parser = FlagParser("python -m flows.ingest", IngestConfig, description, epilog)
    given = parser.parse(argv)          # Invocation(config, dry_run)

A configuration with a folder of recipes also has `--recipe NAME|FILE`; its field `recipe`, where it
has one, learns which recipe that was: `NAME@HASH`, `FILE@HASH`.

Flags are the field names in kebab-case, nested settings are `--group.name`, a list is given by
repeating its flag or with commas. The setting marked `positional` takes the bare arguments; when it
is no list, it has a flag as well. Flags win over the file, and the file over the recipe. Everything
a user can get wrong raises `UsageError` with a line for each fault that names the flag (or the file
and key) and the cure.

Not pydantic-settings' command line: that splits bare arguments at commas, so a document called
`a,b.pdf` could not be named, and it also reads settings from like-named environment variables.
"""

from __future__ import annotations

import argparse
import difflib
import hashlib
import json
import types
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Generic, Literal, NamedTuple, NoReturn, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from workspace.config import StageConfig, read_yaml
from workspace.errors import UserError

ConfigT = TypeVar("ConfigT", bound=StageConfig)
Values = dict[str, Any]

_METAVARS = {int: "N", float: "X", Path: "PATH", str: "TEXT"}
_BARE = "bare:"  # before the key of a setting that was given without its flag
_BOUNDS = {"ge": "at least", "gt": "more than", "le": "at most", "lt": "less than"}


class UsageError(UserError):
    """The command line or its config file is wrong."""


class Invocation(NamedTuple, Generic[ConfigT]):
    """What a command line asks for."""

    config: ConfigT
    dry_run: bool


class Setting(NamedTuple):
    """One leaf field of a configuration: where it is, how it is described, what it takes."""

    path: tuple[str, ...]
    field: FieldInfo
    kind: Any  # the annotation without `| None`

    @property
    def key(self) -> str:
        return ".".join(self.path)

    @property
    def flag(self) -> str:
        return "--" + self.key.replace("_", "-")

    @property
    def is_positional(self) -> bool:
        return len(self.path) == 1 and _extra(self.field).get("positional") is True

    @property
    def bare(self) -> str:
        """How usage calls a bare argument."""
        return self.path[-1].removesuffix("s").upper()

    @property
    def label(self) -> str:
        """How errors call the setting: as it is most likely given."""
        return self.path[-1].upper() if self.is_positional and self.is_list else self.flag

    @property
    def is_list(self) -> bool:
        return get_origin(self.kind) in (list, tuple, set, frozenset)

    @property
    def is_mapping(self) -> bool:
        return self.kind is dict or get_origin(self.kind) is dict


class FlagParser(argparse.ArgumentParser, Generic[ConfigT]):
    """Parses the flags of one configuration."""

    def __init__(
        self,
        prog: str,
        config: type[ConfigT],
        description: str,
        epilog: str,
        *,
        can_preview: bool = True,
        recipes: Path | None = None,
    ) -> None:
        super().__init__(
            prog=prog,
            description=description,
            epilog=epilog,
            add_help=False,
            allow_abbrev=False,
            argument_default=argparse.SUPPRESS,
            formatter_class=partial(argparse.RawDescriptionHelpFormatter, max_help_position=30),
        )
        self._config = config
        self._settings = list(_settings(config))
        groups = {"": self.add_argument_group("settings")}
        for setting in self._settings:
            parent = ".".join(setting.path[:-1])
            if parent not in groups:
                groups[parent] = self.add_argument_group(f"{parent} settings")
            _add_argument(groups[parent], setting)
        other = self.add_argument_group("other")
        other.add_argument(
            "--config",
            type=Path,
            metavar="FILE",
            help="YAML file of settings by name (`workers: 2`); flags win over it",
        )
        self._recipes = recipes
        if recipes is not None:
            other.add_argument(
                "--recipe",
                metavar="NAME|FILE",
                help=f"settings to begin with: {', '.join(recipe_names(recipes))}, or a YAML file",
            )
        if can_preview:
            other.add_argument(
                "--dry-run", action="store_true", help="say what would be done and stop"
            )
        other.add_argument("-h", "--help", action="help", help="show this text and stop")
        bare = [setting for setting in self._settings if setting.is_positional]
        self.usage = " ".join([prog, *(_usage(setting) for setting in bare), "[--flag value …]"])

    def parse(self, arguments: Sequence[str]) -> Invocation[ConfigT]:
        """The validated configuration. Raises `UsageError`; `--help` exits 0."""
        namespace, unknown = self.parse_known_intermixed_args(list(arguments))
        if unknown:
            self._refuse_unknown(unknown)
        given = vars(namespace)
        self._join_spellings(given)
        file = given.get("config")
        values: Values = {}
        origin = file
        if "recipe" in given:
            origin = self._find_recipe(given["recipe"])
            values = self._read_file(origin)
        if file:
            values = _merge(values, self._read_file(file))
            origin = file
        if "recipe" in given and "recipe" in self._config.model_fields:
            values["recipe"] = self._note_of(given["recipe"])
        from_flags: set[str] = set()
        for setting in self._settings:
            if setting.key in given and given[setting.key] != []:
                from_flags.add(setting.key)
                _store(values, setting.path, _decode(setting, given[setting.key]))
        try:
            config = self._config.model_validate(values)
        except ValidationError as error:
            lines = [self._describe(item, from_flags, origin) for item in error.errors()]
            raise UsageError("\n".join(dict.fromkeys(lines))) from error
        return Invocation(config, dry_run=given.get("dry_run", False))

    def error(self, message: str) -> NoReturn:
        raise UsageError(message.removeprefix("argument "))

    def _read_file(self, file: Path) -> Values:
        try:
            return read_yaml(file)
        except UserError as error:
            raise UsageError(str(error)) from error

    def _find_recipe(self, given: str) -> Path:
        """A YAML file by path, or one of the recipes by name."""
        assert self._recipes is not None
        path = Path(given)
        if path.suffix not in (".yaml", ".yml"):
            path = self._recipes / f"{given}.yaml"
            if given not in recipe_names(self._recipes):
                known = ", ".join(recipe_names(self._recipes))
                raise UsageError(f"--recipe: {given!r} is no YAML file and none of: {known}")
        return path

    def _note_of(self, given: str) -> str:
        path = self._find_recipe(given)
        name = given if Path(given) != path else path.name
        return f"{name}@{hashlib.sha256(path.read_bytes()).hexdigest()[:16]}"

    def _join_spellings(self, given: Values) -> None:
        """Take the bare argument and its flag for one."""
        for setting in self._settings:
            if setting.is_positional and _BARE + setting.key in given:
                bare = given.pop(_BARE + setting.key)
                if setting.key in given:
                    raise UsageError(
                        f"{setting.flag}: {setting.bare} is there twice, as {bare!r} and as "
                        f"{given[setting.key]!r}: give one"
                    )
                given[setting.key] = bare

    def _refuse_unknown(self, unknown: list[str]) -> NoReturn:
        flag = unknown[0].partition("=")[0]
        if not flag.startswith("-"):
            raise UsageError(f"{flag!r} is not expected here: only flags are taken, see --help")
        known = list(self._option_string_actions)
        close = difflib.get_close_matches(flag, known, n=1)
        cure = f"did you mean {close[0]}?" if close else "see --help for the flags there are"
        raise UsageError(f"unknown flag {flag}: {cure}")

    def _describe(self, item: ErrorDetails, from_flags: set[str], file: Path | None) -> str:
        location = tuple(str(part) for part in item["loc"])
        setting = self._find(location)
        fault = item["msg"].removeprefix("Value error, ").replace("Input should", "should", 1)
        if setting is None:
            name = ".".join(location) or "settings"
            if item["type"] == "extra_forbidden":
                close = difflib.get_close_matches(name, [s.key for s in self._settings], n=1)
                fault = "unknown setting" + (f": did you mean {close[0]}?" if close else "")
            return f"{file or self.prog}: {name}: {fault}"
        if item["type"] == "missing":
            return f"{setting.label} is required: give it, or set {setting.key} in a --config file"
        if setting.key in from_flags:
            name = setting.label
        else:
            name = f"{file}: {setting.key}" if file else setting.flag
        return f"{name}: {fault} (got {item['input']!r})"

    def _find(self, location: tuple[str, ...]) -> Setting | None:
        for setting in self._settings:
            if location[: len(setting.path)] == setting.path:
                return setting
        return None


def recipe_names(folder: Path) -> list[str]:
    """The recipes in a folder: its YAML files without their suffix."""
    return sorted(path.stem for path in folder.glob("*.yaml"))


def _merge(below: Values, above: Values) -> Values:
    """`above` over `below`, group by group."""
    merged = dict(below)
    for name, value in above.items():
        known = merged.get(name)
        both = isinstance(known, dict) and isinstance(value, dict)
        merged[name] = _merge(known, value) if both else value  # type: ignore[arg-type]
    return merged


def _settings(model: type[BaseModel], prefix: tuple[str, ...] = ()) -> Iterator[Setting]:
    """Leaf fields in the order of their positions, nested groups after plain fields."""
    fields = sorted(
        model.model_fields.items(), key=lambda item: (_extra(item[1]).get("position", 999), item[0])
    )
    nested: list[tuple[str, type[BaseModel]]] = []
    for name, field in fields:
        kind = _without_none(field.annotation)
        if _extra(field).get("flag") is False:
            continue
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            nested.append((name, kind))
        else:
            yield Setting((*prefix, name), field, kind)
    for name, kind in nested:
        yield from _settings(kind, (*prefix, name))


def _add_argument(group: argparse._ArgumentGroup, setting: Setting) -> None:
    text = _help(setting)
    if setting.is_positional and setting.is_list:
        group.add_argument(setting.key, nargs="*", metavar=setting.bare, help=text)
        return
    if setting.is_positional:
        hidden = argparse.SUPPRESS  # the flag's line speaks for both
        group.add_argument(_BARE + setting.key, nargs="?", metavar=setting.bare, help=hidden)
    if setting.kind is bool:
        group.add_argument(
            setting.flag, dest=setting.key, action=argparse.BooleanOptionalAction, help=text
        )
    else:
        action = "append" if setting.is_list else "store"
        group.add_argument(
            setting.flag, dest=setting.key, action=action, metavar=_metavar(setting), help=text
        )


def _usage(setting: Setting) -> str:
    name = setting.bare + "…" if setting.is_list else f"{setting.flag} {setting.bare}"
    return name if setting.field.is_required() else f"[{name}]"


def _metavar(setting: Setting) -> str:
    kind = setting.kind
    if setting.is_mapping:
        return "JSON"
    if setting.is_list:
        inner = [item for item in get_args(kind) if item is not Ellipsis]
        kind = _without_none(inner[0]) if inner else str
    if get_origin(kind) is Literal:
        return "{" + ",".join(str(choice) for choice in get_args(kind)) + "}"
    return _METAVARS.get(kind, "VALUE")


def _help(setting: Setting) -> str:
    notes = [_bounds(setting.field)]
    if setting.is_list and not setting.is_positional:
        notes.append("repeat or separate with commas")
    if setting.field.is_required():
        notes.append("required")
    else:
        default = setting.field.get_default(call_default_factory=True)
        if default not in (None, "", (), [], {}):
            notes.append(f"default {_plain(default)}")
    notes = [note for note in notes if note]
    text = setting.field.description or ""
    return (f"{text} ({'; '.join(notes)})" if notes else text).replace("%", "%%")


def _bounds(field: FieldInfo) -> str:
    bounds = {
        name: getattr(bound, name)
        for bound in field.metadata
        for name in _BOUNDS
        if getattr(bound, name, None) is not None
    }
    if set(bounds) == {"ge", "le"}:
        return f"{bounds['ge']} to {bounds['le']}"
    return ", ".join(f"{_BOUNDS[name]} {value}" for name, value in bounds.items())


def _plain(default: Any) -> str:
    if isinstance(default, bool):
        return "on" if default else "off"
    if isinstance(default, (list, tuple, set, frozenset)):
        return ",".join(str(item) for item in default)
    return str(default)


def _decode(setting: Setting, given: Any) -> Any:
    """Text of the command line -> what pydantic validates."""
    if setting.is_list and not setting.is_positional:
        return [part for text in given for part in text.split(",")]
    if setting.is_mapping:
        try:
            return json.loads(given)
        except ValueError as error:
            raise UsageError(f'{setting.flag}: not JSON, like {{"name": 1}}: {error}') from error
    takes_none = type(None) in get_args(setting.field.annotation)
    return None if takes_none and given == "none" else given


def _store(values: Values, path: tuple[str, ...], value: Any) -> None:
    for name in path[:-1]:
        inner = values.get(name)
        values[name] = inner = dict(inner) if isinstance(inner, dict) else {}
        values = inner
    values[path[-1]] = value


def _without_none(annotation: Any) -> Any:
    if get_origin(annotation) in (Union, types.UnionType):
        kinds = [kind for kind in get_args(annotation) if kind is not type(None)]
        return kinds[0] if len(kinds) == 1 else annotation
    return annotation


def _extra(field: FieldInfo) -> dict[str, Any]:
    return field.json_schema_extra if isinstance(field.json_schema_extra, dict) else {}
