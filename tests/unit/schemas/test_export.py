"""The generated contract: JSON Schema files and the AsyncAPI document."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from pydantic import ValidationError

import utterd_schemas
from utterd_schemas import ErrorCode, ErrorInfo, FailedData, Job
from utterd_schemas.export import asyncapi, documents, json_schemas, main, yaml_lines
from utterd_schemas.job import SCHEMA_VERSION

PACKAGE = Path(utterd_schemas.__file__).parent
VERSION = f"{SCHEMA_VERSION}.0.0"


def generated_files(directory: Path) -> dict[str, str]:
    paths = [*directory.glob("json/*"), *directory.glob("*.yaml")]
    return {
        path.relative_to(directory).as_posix(): path.read_text(encoding="utf-8") for path in paths
    }


def test_the_files_in_the_package_equal_the_models():
    """Whoever changes a model runs `python -m utterd_schemas.export schemas/utterd_schemas`."""
    assert generated_files(PACKAGE) == documents(VERSION)


def test_main_writes_every_document(tmp_path: Path):
    """The command makes the directories that it needs."""
    main(tmp_path / "contract")
    assert generated_files(tmp_path / "contract") == documents(VERSION)


@pytest.mark.parametrize("name", json_schemas())
def test_every_schema_is_valid_and_versioned(name: str):
    """Each file is a JSON Schema 2020-12 document with an `$id` of its own."""
    schema = json_schemas()[name]
    Draft202012Validator.check_schema(schema)
    assert schema["$schema"] == Draft202012Validator.META_SCHEMA["$id"]
    assert schema["$id"] == f"urn:utterd:schema:{name}:v{SCHEMA_VERSION}"


def test_the_error_codes_are_closed_in_the_schema():
    """A subscriber can list every reason why a job fails."""
    codes = json_schemas()["error"]["$defs"]["ErrorCode"]["enum"]
    assert codes == [code.value for code in ErrorCode]


JOBS: list[dict[str, Any]] = [
    {"text": "Hello."},
    {"ssml": "<speak>Hello.</speak>"},
    {"text": "a", "ssml": None},
    {"text": None, "ssml": "a"},
    {"text": "a", "speed": 1},
    {"text": "a", "marks": ["word", "sentence"], "labels": {"a": ""}, "schema": 1},
    {"text": "a", "format": "opus", "sample_rate_hz": 48000, "bitrate_kbps": 64, "seed": 0},
    {"text": "a", "language": "zh-Hant", "expires_at": "2030-01-31T12:00:00Z", "voice": None},
    {},
    {"text": None},
    {"text": "a", "ssml": "a"},
    {"text": "a", "txt": "a"},
    {"text": "a", "schema_version": 1},
    {"text": 5},
    {"text": "a", "job_id": ""},
    {"text": "a", "job_id": "x" * 129},
    {"text": "a", "language": "EN"},
    {"text": "a", "speed": "1.0"},
    {"text": "a", "speed": True},
    {"text": "a", "speed": 2.5},
    {"text": "a", "format": "WAV"},
    {"text": "a", "sample_rate_hz": 7999},
    {"text": "a", "sample_rate_hz": True},
    {"text": "a", "bitrate_kbps": 513},
    {"text": "a", "marks": ["word", "word"]},
    {"text": "a", "marks": "word"},
    {"text": "a", "normalize": 1},
    {"text": "a", "seed": 2**63},
    {"text": "a", "expires_at": 5},
    {"text": "a", "labels": {"": "x"}},
    {"text": "a", "labels": {"x": "v" * 257}},
    {"text": "a", "labels": {f"l{number}": "" for number in range(17)}},
    {"text": "a", "schema": 0},
]


@pytest.mark.parametrize("job", JOBS)
def test_the_schema_and_the_model_agree_on_jobs(job: dict[str, Any]):
    """A publisher that validates with the schema learns what the daemon would say."""
    try:
        Job.model_validate(job)
    except ValidationError:
        accepted = False
    else:
        accepted = True
    assert Draft202012Validator(json_schemas()["job"]).is_valid(job) is accepted


def test_an_event_satisfies_its_schema():
    """What the daemon sends is what the schema promises."""
    error = ErrorInfo(code=ErrorCode.EMPTY_TEXT, message="nothing to say", retryable=False)
    data = FailedData(job_id="7", error=error, attempts=1).model_dump(mode="json")
    validator = Draft202012Validator(json_schemas()["failed-event"])
    assert validator.is_valid(data)
    assert not validator.is_valid({**data, "attempts": 0})


def test_the_asyncapi_file_parses_to_the_document():
    """The hand-written YAML says exactly what the document says."""
    text = (PACKAGE / "asyncapi.yaml").read_text(encoding="utf-8")
    assert yaml.safe_load(text) == asyncapi(VERSION)


def references(node: object) -> Iterator[str]:
    if isinstance(node, dict):
        if isinstance(target := node.get("$ref"), str):
            yield target
        for item in node.values():
            yield from references(item)
    elif isinstance(node, list):
        for item in node:
            yield from references(item)


def test_every_reference_of_the_asyncapi_document_resolves():
    """References lead to a part of the document, or to a file beside it."""
    document = asyncapi(VERSION)
    for reference in references(document):
        path, _, pointer = reference.partition("#/")
        if path:
            assert path in documents(VERSION)
        else:
            node: Any = document
            for part in pointer.split("/"):
                node = node[part]


def test_the_parameters_of_an_address_are_declared():
    """Each name in braces has its legal values."""
    for channel in asyncapi(VERSION)["channels"].values():
        names = [part.partition("}")[0] for part in channel["address"].split("{")[1:]]
        assert names == list(channel["parameters"])


PLAIN_TEXT = st.text(st.characters(codec="utf-8", categories=("L", "N", "P", "Zs", "So")))
SCALARS = st.none() | st.booleans() | st.integers() | PLAIN_TEXT
KEYS = st.sampled_from(["a", "is", "$ref", "a b", "synthesis.failed", "é", "", "1"])
DATA = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3)
)


@given(st.dictionaries(KEYS, DATA, max_size=3))
def test_yaml_keeps_every_structure(document: dict[str, Any]):
    """Nested lists and mappings, also empty ones, come back as they went."""
    assert yaml.safe_load("\n".join(yaml_lines(document))) == json.loads(json.dumps(document))
