"""Writes the tables of `docs/settings.md` from the settings' own docstrings and defaults.

python -m utterd.settings_reference docs/settings.md
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import BaseModel, SecretStr
from pydantic.fields import FieldInfo

from utterd.config import Settings

BEGIN = "<!-- The tables below are generated: python -m utterd.settings_reference -->"
END = "<!-- End of the generated tables. -->"

JsonSchema = dict[str, Any]

_HEAD = ("| Setting | Values | Default | Meaning |", "| --- | --- | --- | --- |")
_BOUNDS = {"minimum": "≥", "exclusiveMinimum": ">", "maximum": "≤", "exclusiveMaximum": "<"}
_STRINGS = {"password": "secret", "path": "path"}


def render() -> str:
    """Every section of the settings as a Markdown heading with a table."""
    return "\n\n".join(_sections(Settings, ""))


def update(document: str) -> str:
    """The document with fresh tables between its two marker lines.

    Raises:
        ValueError: a marker is missing.
    """
    head, _, rest = document.partition(BEGIN)
    _, marker, tail = rest.partition(END)
    if not marker:
        raise ValueError(f"the document must hold the lines {BEGIN} and {END}")
    return f"{head}{BEGIN}\n\n{render()}\n\n{END}{tail}"


def _sections(model: type[BaseModel], path: str) -> Iterator[str]:
    schema = model.model_json_schema()
    children: list[str] = []
    rows: list[str] = []
    for name, field in model.model_fields.items():
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            title = f"{'###' if path else '##'} `{path}{name}`\n\n{_meaning(field)}"
            section, *nested = _sections(field.annotation, f"{path}{name}.")
            children += [f"{title}\n\n{section}", *nested]
        else:
            values = _values(schema["properties"][name], schema.get("$defs", {}))
            rows.append(f"| `{path}{name}` | {values} | {_default(field)} | {_meaning(field)} |")
    if rows:
        yield "\n".join((*_HEAD, *rows))
    yield from children


def _meaning(field: FieldInfo) -> str:
    return " ".join((field.description or "").split())


def _values(schema: JsonSchema, definitions: JsonSchema) -> str:
    """What a setting can be, such as `integer ≥ 1`."""
    if "$ref" in schema:
        schema = definitions[schema["$ref"].rsplit("/", 1)[1]]
    if "anyOf" in schema:
        kinds = (kind for kind in schema["anyOf"] if kind.get("type") != "null")
        return " or ".join(_values(kind, definitions) for kind in kinds)
    if "enum" in schema:
        return ", ".join(f"`{value}`" for value in schema["enum"])
    match schema["type"]:
        case "string":
            values = _STRINGS.get(schema.get("format", ""), "text")
        case "boolean":
            values = "`true`, `false`"
        case "array":
            values = f"list, each {_values(schema['items'], definitions)}"
        case "object":
            values = f"table, each {_values(schema['additionalProperties'], definitions)}"
        case number:
            bounds = [f"{sign} {schema[key]}" for key, sign in _BOUNDS.items() if key in schema]
            values = f"{number} {', '.join(bounds)}".strip()
    return values


def _default(field: FieldInfo) -> str:
    value = field.get_default(call_default_factory=True, validated_data={})
    if isinstance(value, SecretStr):
        value = value.get_secret_value()
    if value is None:
        return "unset"
    if isinstance(value, str | Path):
        return f"`{value}`" if str(value) else "empty"
    return f"`{json.dumps(value)}`"


def main(path: Path) -> None:
    path.write_text(update(path.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
