"""The job model: what it takes, what it refuses."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from utterd_schemas import AudioFormat, Job, MarkKind
from utterd_schemas.job import FIELD_NAMES, SCHEMA_VERSION


def job(**fields: Any) -> Job:
    return Job.model_validate({"text": "Hello.", **fields})


def test_the_smallest_job_is_a_text():
    """Everything but the words has a default."""
    smallest = job()
    assert smallest.text == "Hello."
    assert (smallest.language, smallest.speed, smallest.normalize) == ("auto", 1.0, True)
    assert (smallest.format, smallest.seed, smallest.voice) == (None, None, None)
    assert (smallest.marks, smallest.labels) == ((), {})
    assert smallest.schema_version == SCHEMA_VERSION


def test_every_field_is_read():
    """A job that names every field keeps each of them."""
    full = Job.model_validate(
        {
            "job_id": "order-7",
            "ssml": "<speak>Hi</speak>",
            "voice": "hibari/heart",
            "language": "zh-Hant-TW",
            "speed": 1.5,
            "format": "opus",
            "sample_rate_hz": 48000,
            "bitrate_kbps": 64,
            "marks": ["word", "sentence"],
            "normalize": False,
            "seed": 2**63 - 1,
            "expires_at": "2030-01-31T12:00:00.25+01:00",
            "labels": {"order": "7"},
            "schema": 1,
        }
    )
    assert full.format is AudioFormat.OPUS
    assert full.marks == (MarkKind.WORD, MarkKind.SENTENCE)
    assert full.expires_at == datetime(2030, 1, 31, 11, 0, 0, 250_000, tzinfo=UTC)
    assert full.labels == {"order": "7"}


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("text", 5),
        ("text", ["Hello."]),
        ("ssml", True),
        ("job_id", 7),
        ("job_id", ""),
        ("job_id", "x" * 129),
        ("job_id", "\ud83d"),
        ("voice", ""),
        ("voice", 5),
        ("language", "EN"),
        ("language", "en\n"),
        ("language", None),
        ("speed", "1.0"),
        ("speed", True),
        ("speed", 0),
        ("speed", 0.49),
        ("speed", 2.01),
        ("speed", float("nan")),
        ("speed", float("inf")),
        ("speed", None),
        ("format", "WAV"),
        ("format", "aac"),
        ("format", 1),
        ("sample_rate_hz", True),
        ("sample_rate_hz", "24000"),
        ("sample_rate_hz", 24000.5),
        ("sample_rate_hz", 7999),
        ("sample_rate_hz", 48001),
        ("bitrate_kbps", 0),
        ("bitrate_kbps", 513),
        ("bitrate_kbps", "64"),
        ("marks", "word"),
        ("marks", ["phoneme"]),
        ("marks", ["word", "word"]),
        ("marks", {"word": True}),
        ("normalize", 1),
        ("normalize", "true"),
        ("seed", -1),
        ("seed", 2**63),
        ("seed", 1.5),
        ("seed", False),
        ("schema", 0),
        ("schema", "1"),
        ("schema", True),
    ],
)
def test_refuses_wrong_types_and_values(field: str, value: object):
    """No field is coerced from another type, and each keeps to its range."""
    with pytest.raises(ValidationError) as refusal:
        job(**{field: value})
    assert refusal.value.errors()[0]["loc"][0] == field


@pytest.mark.parametrize(
    "instant",
    [
        1_900_000_000,
        "1900000000",
        True,
        "2030-01-31",
        "2030-01-31T12:00:00",
        "2030-01-31T12:00Z",
        "2030-01-31_12:00:00Z",
        "2030-01-31T12:00:00+0100",
        "2030-02-30T12:00:00Z",
        "٢٠٣٠-01-31T12:00:00Z",
        "tomorrow",
    ],
)
def test_an_expiry_is_an_rfc_3339_string_with_a_zone(instant: object):
    """Numbers, dates without time and instants without a zone are refused."""
    with pytest.raises(ValidationError):
        job(expires_at=instant)


@pytest.mark.parametrize("instant", ["2030-01-31T12:00:00Z", "2030-01-31t12:00:00.5z"])
def test_an_expiry_may_be_spelt_in_all_ways_of_rfc_3339(instant: str):
    """Small letters and fractions of a second are legal."""
    assert job(expires_at=instant).expires_at is not None


@pytest.mark.parametrize("scripts", [{}, {"text": "a", "ssml": "b"}, {"text": None}])
def test_refuses_no_script_and_two(scripts: dict[str, Any]):
    """Exactly one of text and SSML is given."""
    with pytest.raises(ValidationError, match="exactly one"):
        Job.model_validate(scripts)


def test_null_is_no_script():
    """A publisher may spell out the script that is absent."""
    assert job(ssml=None).text == "Hello."


@pytest.mark.parametrize("body", [None, 5, "text", [{"text": "Hello."}]])
def test_refuses_what_is_no_object(body: object):
    """A job is a JSON object."""
    with pytest.raises(ValidationError):
        Job.model_validate(body)


@pytest.mark.parametrize("name", ["txt", "Text", "schema_version", ""])
def test_refuses_unknown_fields(name: str):
    """A field that is not in the contract is most likely misspelt."""
    with pytest.raises(ValidationError) as refusal:
        job(**{name: 1})
    assert refusal.value.errors()[0]["type"] == "extra_forbidden"


def test_passes_over_unknown_fields_of_a_newer_contract():
    """A publisher that wrote for a later version is served as far as this one knows."""
    newer = job(schema=SCHEMA_VERSION + 1, emotion="joy")
    assert newer.schema_version == SCHEMA_VERSION + 1
    assert not hasattr(newer, "emotion")


def test_a_newer_contract_excuses_no_wrong_value():
    """The fields that are known here are held to their types in every version."""
    with pytest.raises(ValidationError):
        job(schema=SCHEMA_VERSION + 1, speed="fast")


def test_drops_lone_surrogates():
    """Half a surrogate pair, which JSON can spell, is dropped from the words (T-56)."""
    body = json.loads(r'{"text": "price \ud83d ok"}')
    assert Job.model_validate(body).text == "price  ok"


def test_keeps_surrogate_pairs():
    """A whole pair in JSON is one character, and stays."""
    body = json.loads(r'{"text": "fine \ud83d\ude00"}')
    assert Job.model_validate(body).text == "fine 😀"


@given(st.text(st.characters(exclude_categories=())))
def test_words_always_fit_utf_8(words: str):
    """Whatever a text holds, the job's can be encoded, and nothing else is lost."""
    kept = job(text=words).text
    assert kept is not None
    assert kept.encode().decode() == "".join(c for c in words if not "\ud800" <= c <= "\udfff")


@pytest.mark.parametrize(
    "labels",
    [
        {f"l{number}": "" for number in range(17)},
        {"": "x"},
        {"n" * 65: "x"},
        {"name": "v" * 257},
        {"name": 1},
        {"name": None},
        {"name": {"nested": "x"}},
        ["name"],
        None,
    ],
)
def test_labels_are_few_short_strings(labels: object):
    """At most 16 labels, names of 1 to 64 and values of at most 256 characters."""
    with pytest.raises(ValidationError):
        job(labels=labels)


def test_labels_up_to_the_limits_pass():
    """The limits themselves are legal."""
    labels = {f"{number:064}": "v" * 256 for number in range(16)}
    assert job(labels=labels).labels == labels


def test_field_names_are_those_of_the_json():
    """The published list of names speaks of `schema`, as the wire does."""
    assert "schema" in FIELD_NAMES
    assert "schema_version" not in FIELD_NAMES
    assert len(FIELD_NAMES) == len(Job.model_fields)


def test_a_million_wrong_marks_are_one_fault():
    """The first one is enough: a list of all of them would cost seconds and a gigabyte."""
    with pytest.raises(ValidationError) as caught:
        Job.model_validate({"text": "a", "marks": [1] * 1_000_000})
    assert caught.value.error_count() == 1
