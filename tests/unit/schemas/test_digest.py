"""The key of a request."""

import dataclasses
import json
import unicodedata
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from utterd_schemas import AudioFormat
from utterd_schemas.digest import SoundIdentity, canonical_json, seed_of

BASE = SoundIdentity(
    script="Café naïve jalapeño.",
    is_ssml=False,
    voice="hibari/heart",
    language="auto",
    speed=1.0,
    normalize=True,
    seed=None,
    lexicon=None,
    front_end="1",
    bundle="0" * 64,
    format=AudioFormat.WAV,
    sample_rate_hz=24_000,
    bitrate_kbps=None,
)

OTHER: dict[str, Any] = {
    "script": "Café naive jalapeño.",
    "is_ssml": True,
    "voice": "hibari/other",
    "language": "en",
    "speed": 1.1,
    "normalize": False,
    "seed": 0,
    "lexicon": "1" * 64,
    "front_end": "2",
    "bundle": "1" * 64,
    "format": AudioFormat.FLAC,
    "sample_rate_hz": 22_050,
    "bitrate_kbps": 64,
}


def test_the_key_of_a_request_never_changes():
    """A key names objects in buckets for years: this value may change only on purpose."""
    assert BASE.key() == "48b52e75cf73320519c22a6c0bccf1a4c2f76e0cee0cfaca103678252767e766"


@pytest.mark.parametrize("field", [field.name for field in dataclasses.fields(SoundIdentity)])
def test_every_field_changes_the_key(field: str):
    """Two requests that differ in one field share no audio (S-15)."""
    assert dataclasses.replace(BASE, **{field: OTHER[field]}).key() != BASE.key()


def test_composed_and_decomposed_letters_share_a_key():
    """The two spellings of an accent are the same text (T-58)."""
    decomposed = unicodedata.normalize("NFD", BASE.script)
    assert decomposed != BASE.script
    assert dataclasses.replace(BASE, script=decomposed).key() == BASE.key()


def test_a_whole_speed_is_the_same_as_an_integer():
    """JSON's `1` and `1.0` mean the same speed."""
    assert dataclasses.replace(BASE, speed=1).key() == BASE.key()


def test_fields_do_not_run_into_each_other():
    """Moving characters from one field to the next makes another request."""
    left = dataclasses.replace(BASE, voice="a", language="bc")
    right = dataclasses.replace(BASE, voice="ab", language="c")
    assert left.key() != right.key()


@given(st.text(st.characters(exclude_categories=("Cs",))))
def test_a_key_is_64_hex_digits_whatever_the_text(script: str):
    """Client text never becomes part of a name, and never breaks the derivation."""
    key = dataclasses.replace(BASE, script=script).key()
    assert len(key) == 64
    assert set(key) <= set("0123456789abcdef")


def test_canonical_json_is_sorted_and_bare():
    """Keys are sorted, white space and needless escapes are left out."""
    assert canonical_json({"b": "é", "a": [1, None]}) == '{"a":[1,null],"b":"é"}'.encode()


@given(st.dictionaries(st.text(st.characters(exclude_categories=("Cs",))), st.integers()))
def test_canonical_json_depends_on_content_alone(value: dict[str, int]):
    """The order of insertion is of no consequence, and nothing is lost."""
    backwards = dict(reversed(value.items()))
    assert canonical_json(backwards) == canonical_json(value)
    assert json.loads(canonical_json(value)) == value


def test_canonical_json_refuses_what_json_has_no_word_for():
    """NaN would be written as an extension that other parsers refuse."""
    with pytest.raises(ValueError, match="JSON compliant"):
        canonical_json({"speed": float("nan")})


def test_the_derived_seed_is_the_first_32_bits_of_the_key():
    """The same request gives the same seed, which fits every generator."""
    assert seed_of("ffffffff" + "0" * 56) == 2**32 - 1
    assert seed_of("00000010" + "f" * 56) == 16
