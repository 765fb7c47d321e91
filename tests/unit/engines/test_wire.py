"""Frames on the wire."""

import asyncio
import io
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import JsonValue

from utterd.engines.wire import Frame, read_frame, receive_frame

TEXT = st.text(st.characters(exclude_categories=("Cs",)))
FRAMES = st.builds(
    Frame, st.dictionaries(TEXT, st.none() | st.booleans() | st.integers() | TEXT), st.binary()
)


def blocking(data: bytes) -> io.BufferedRWPair:
    return io.BufferedRWPair(io.BytesIO(data), io.BytesIO())  # type: ignore[arg-type]


async def received(data: bytes) -> list[Frame]:
    stream = asyncio.StreamReader()
    stream.feed_data(data)
    stream.feed_eof()
    frames = []
    while (frame := await receive_frame(stream)) is not None:
        frames.append(frame)
    return frames


@given(st.lists(FRAMES, max_size=4))
def test_both_sides_read_what_was_written(frames: list[Frame]):
    """Frames follow each other without a separator."""
    data = b"".join(frame.encode() for frame in frames)
    stream = blocking(data)
    assert [read_frame(stream) for _ in frames] == frames
    assert read_frame(stream) is None
    assert asyncio.run(received(data)) == frames


@given(FRAMES, st.data())
def test_half_a_frame_is_none(frame: Frame, data: st.DataObject):
    """A peer that died in the middle of a frame is gone, and nothing raises."""
    whole = frame.encode()
    half = whole[: data.draw(st.integers(0, len(whole) - 1))]
    assert read_frame(blocking(half)) is None
    assert asyncio.run(received(half)) == []


def test_samples_travel_as_they_are():
    """The payload is not touched by the header's encoding."""
    frame = Frame({"request": 1}, bytes(range(256)))
    assert frame.encode().endswith(frame.payload)


@pytest.mark.parametrize("error", [ConnectionResetError, BrokenPipeError])
async def test_a_reset_connection_is_a_peer_that_is_gone(error: type[ConnectionError]):
    """A killed process may leave a reset instead of an end of file."""

    class Reset(io.RawIOBase):
        def readable(self) -> bool:
            return True

        def readinto(self, buffer: object) -> int:
            del buffer
            raise error

    stream = asyncio.StreamReader()
    stream.set_exception(error())
    assert await receive_frame(stream) is None
    assert read_frame(cast("io.BufferedRWPair", io.BufferedReader(Reset()))) is None


def test_headers_hold_any_json():
    """An error's detail may be nested."""
    header: dict[str, JsonValue] = {"error": {"detail": {"values": ["é", None, 1.5]}}}
    assert read_frame(blocking(Frame(header).encode())) == Frame(header)
