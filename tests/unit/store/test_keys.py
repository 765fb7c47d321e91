"""Object names."""

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from utterd.store.keys import object_name, validate_object_name, validate_prefix

KEY = "0123456789abcdef" * 4

keys = st.text("0123456789abcdef", min_size=64, max_size=64)
extensions = st.sampled_from(["wav", "mp3", "marks.json"])
prefixes = st.lists(
    st.text(string.ascii_letters + string.digits + "_-é ", min_size=1, max_size=8), max_size=4
).map(lambda folders: "".join(f"{folder}/" for folder in folders))


def test_spreads_objects_by_their_first_two_digits():
    """The name is the prefix, two digits of the key, the key and the extension."""
    assert object_name("speech/", KEY, "wav") == f"speech/01/{KEY}.wav"


@given(prefix=prefixes, key=keys, extension=extensions)
def test_every_made_name_is_a_valid_name(prefix, key, extension):
    """Whatever `object_name` returns, a store accepts."""
    name = object_name(prefix, key, extension)
    assert validate_object_name(name) == name
    assert name == f"{prefix}{key[:2]}/{key}.{extension}"


@pytest.mark.parametrize("prefix", ["", "speech/", "speech-", "a/b/c/", "語/"])
def test_accepts_prefixes_that_begin_a_plain_path(prefix):
    """A prefix may be empty, end a folder, or begin a file name."""
    assert validate_prefix(prefix) == prefix


@pytest.mark.parametrize(
    "prefix",
    [
        *["/", "/speech/", "speech//", "../", "speech/../", "speech/..", "./", ".hidden/"],
        *["a\\b/", "nul\0/", "line\n/", "\x7f/", "\ud800/"],
        "x" * 513,
    ],
)
def test_refuses_prefixes_that_lead_elsewhere(prefix):
    """No prefix is absolute, climbs, hides, or holds a control character."""
    with pytest.raises(ValueError, match=r"."):
        object_name(prefix, KEY, "wav")


@pytest.mark.parametrize("key", ["", KEY[:-1], KEY + "0", KEY.upper(), KEY[:-1] + "g", KEY + "\n"])
def test_refuses_keys_that_are_no_digest(key):
    """A key is exactly 64 lower-case hexadecimal digits."""
    with pytest.raises(ValueError, match="64 lower-case"):
        object_name("", key, "wav")


@pytest.mark.parametrize("extension", ["", ".wav", "wav/", "..", "WAV", "w v"])
def test_refuses_extensions_that_are_more_than_that(extension):
    """An extension is lower-case words between single dots."""
    with pytest.raises(ValueError, match="extension"):
        object_name("", KEY, extension)


@given(st.text(max_size=40))
def test_a_valid_name_never_leaves_a_directory(name):
    """A name that passes has only plain, visible parts."""
    try:
        validate_object_name(name)
    except ValueError:
        return
    assert all(part and not part.startswith(".") for part in name.split("/"))
    assert "\0" not in name


def test_refuses_names_longer_than_s3_takes():
    """The limit counts UTF-8 bytes, not characters."""
    validate_object_name("x" * 1024)
    with pytest.raises(ValueError, match="1024"):
        validate_object_name("é" * 513)
