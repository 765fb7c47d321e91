"""Audio facts in object metadata."""

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from utterd.store.audio_object import AudioFacts
from utterd.store.metadata import validate_metadata
from utterd.store.protocol import StoredObject
from utterd_schemas.audio import AudioFormat

FACTS = AudioFacts(
    duration_s=1.25,
    frames=30_000,
    sample_rate_hz=24_000,
    channels=1,
    format=AudioFormat.WAV,
    engine="hibari",
    voice="hibari/en",
    bundle="5" * 64,
    language="en",
    size_bytes=60_044,
    sha256="a" * 64,
    pcm_sha256="b" * 64,
    job_id="job-1",
    quality="ok",
    has_marks=False,
)

counts = st.integers(0, 10**12)
digests = st.integers(0, 2**256 - 1).map("{:064x}".format)
short_texts = st.text(max_size=16)
all_facts = st.builds(
    AudioFacts,
    duration_s=st.floats(0, 1e6),
    frames=counts,
    sample_rate_hz=counts,
    channels=counts,
    size_bytes=st.integers(1, 10**12),
    engine=short_texts,
    voice=short_texts,
    language=short_texts,
    quality=short_texts,
    bundle=digests,
    sha256=digests,
    pcm_sha256=digests,
    job_id=st.text(st.characters(codec=None, exclude_categories=()), max_size=128),
)


def stored(facts: AudioFacts, **changes: str) -> StoredObject:
    return StoredObject(
        name="01/0123.wav",
        size_bytes=facts.size_bytes,
        content_type="audio/wav",
        metadata=facts.to_metadata() | changes,
    )


@given(all_facts)
def test_facts_survive_the_way_through_metadata(facts):
    """Any facts, with a job id of any characters, fit into headers and come back equal."""
    validate_metadata(facts.to_metadata())
    assert AudioFacts.from_stored(stored(facts)) == facts


def test_an_empty_object_is_a_miss():
    """Zero bytes are never audio, even where the metadata agrees."""
    facts = dataclasses.replace(FACTS, size_bytes=0)
    assert AudioFacts.from_stored(stored(facts)) is None


@pytest.mark.parametrize("size_bytes", [0, 1, 60_043, 60_045])
def test_an_object_of_another_size_is_a_miss(size_bytes):
    """An object that was cut short, or overwritten, is not the one that was described."""
    cut = dataclasses.replace(stored(FACTS), size_bytes=size_bytes)
    assert AudioFacts.from_stored(cut) is None


@pytest.mark.parametrize("name", sorted(FACTS.to_metadata()))
def test_missing_metadata_is_a_miss(name):
    """Each fact is needed."""
    metadata = {key: value for key, value in FACTS.to_metadata().items() if key != name}
    assert AudioFacts.from_stored(dataclasses.replace(stored(FACTS), metadata=metadata)) is None


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("duration-s", "nan"),
        ("duration-s", "-1.0"),
        ("duration-s", "soon"),
        ("frames", "-1"),
        ("frames", "1_000"),
        ("frames", "9" * 5000),
        ("channels", " 1"),
        ("format", "aiff"),
        ("sha256", "A" * 64),
        ("pcm-sha256", ""),
        ("job-id", "%FF"),
        ("marks", "maybe"),
    ],
)
def test_malformed_metadata_is_a_miss(name, value):
    """What can't be read is treated like what is not there."""
    assert AudioFacts.from_stored(stored(FACTS, **{name: value})) is None


@given(st.dictionaries(st.sampled_from(sorted(FACTS.to_metadata())), st.text()))
def test_no_metadata_raises(metadata):
    """Whatever another program wrote beside an object, reading it never fails."""
    AudioFacts.from_stored(StoredObject("x", 1, "audio/wav", FACTS.to_metadata() | metadata))
