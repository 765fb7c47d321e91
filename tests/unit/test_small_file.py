"""Files that a person wrote."""

import os

import pytest

from utterd.small_file import MAX_BYTES, read_small_file


def test_the_whole_file_is_read(tmp_path):
    """Up to the limit."""
    path = tmp_path / "a"
    path.write_bytes(b"x" * MAX_BYTES)
    assert read_small_file(path) == b"x" * MAX_BYTES


def test_a_larger_file_is_refused(tmp_path):
    """Also one without an end, such as a device."""
    path = tmp_path / "a"
    path.symlink_to("/dev/zero")
    with pytest.raises(OSError, match="more than 1048576 bytes"):
        read_small_file(path)


def test_nobody_waits_for_a_pipe(tmp_path):
    """It may never have a writer."""
    os.mkfifo(tmp_path / "a")
    with pytest.raises(OSError, match="a pipe"):
        read_small_file(tmp_path / "a")


def test_a_name_that_no_file_has_is_an_error_like_any_other(tmp_path):
    """A settings file can hold a NUL."""
    with pytest.raises(OSError, match="null"):
        read_small_file(tmp_path / "a\0b")


def test_the_empty_device_is_an_empty_file():
    """It is what people name who want none."""
    assert read_small_file(os.devnull) == b""
