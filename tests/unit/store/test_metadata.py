"""What headers carry."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from utterd.store.metadata import (
    METADATA_LIMIT_BYTES,
    decode_text,
    encode_text,
    validate_metadata,
)

any_text = st.text(st.characters(codec=None, exclude_categories=()), max_size=128)


@given(any_text)
def test_any_text_survives(text):
    """Control characters, lone surrogates and edge blanks come back as they were."""
    encoded = encode_text(text)
    validate_metadata({"job-id": encoded})
    assert decode_text(encoded) == text


@given(any_text)
def test_text_grows_within_bounds(text):
    """128 characters of any kind take at most 700 bytes."""
    assert len(encode_text(text)) <= 700


def test_plain_text_stays_legible():
    """Identifiers look the same in a bucket browser."""
    assert encode_text("hibari/en:42") == "hibari/en:42"


@pytest.mark.parametrize("value", ["=*", "=YQ", "%FF", "=_w==", "=é"])
def test_refuses_what_it_did_not_encode(value):
    """A foreign value raises a ValueError, whatever it looks like."""
    with pytest.raises(ValueError, match=r"."):
        decode_text(value)


@pytest.mark.parametrize("name", ["", "Upper", "under_score", "-a", "a-", "a b", "é"])
def test_refuses_names_that_headers_lose(name):
    """Names keep to what every server and proxy passes on unchanged."""
    with pytest.raises(ValueError, match="name"):
        validate_metadata({name: "x"})


@pytest.mark.parametrize("value", ["", " x", "x ", "é", "a\nb", "\0"])
def test_refuses_values_that_headers_lose(value):
    """Values are printable ASCII without blanks at an end."""
    with pytest.raises(ValueError, match="ASCII"):
        validate_metadata({"name": value})


def test_refuses_more_than_s3_keeps():
    """The limit counts names and values together."""
    validate_metadata({"name": "x" * (METADATA_LIMIT_BYTES - 4)})
    with pytest.raises(ValueError, match="2049"):
        validate_metadata({"name": "x" * (METADATA_LIMIT_BYTES - 3)})
