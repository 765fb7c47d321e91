"""Frames between the daemon and its workers: two lengths, a JSON header, a payload of bytes."""

import json
import struct
from asyncio import IncompleteReadError, StreamReader
from dataclasses import dataclass
from io import BufferedRWPair

from pydantic import JsonValue

_LENGTHS = struct.Struct(">II")


@dataclass(frozen=True, slots=True)
class Frame:
    """One message on the wire.

    Attributes:
        header: what it is about.
        payload: raw float32 samples, or nothing.
    """

    header: dict[str, JsonValue]
    payload: bytes = b""

    def encode(self) -> bytes:
        header = json.dumps(self.header).encode()
        return _LENGTHS.pack(len(header), len(self.payload)) + header + self.payload


def read_frame(stream: BufferedRWPair) -> Frame | None:
    """The next frame of a blocking stream; None when the other side is gone."""
    try:
        lengths = stream.read(_LENGTHS.size)
        if len(lengths) < _LENGTHS.size:
            return None
        header_size, payload_size = _LENGTHS.unpack(lengths)
        header, payload = stream.read(header_size), stream.read(payload_size)
    except ConnectionError:
        return None
    if len(header) < header_size or len(payload) < payload_size:
        return None
    return Frame(json.loads(header), payload)


def write_frame(stream: BufferedRWPair, frame: Frame) -> None:
    """Write to a blocking stream at once; `BrokenPipeError` when the other side is gone."""
    stream.write(frame.encode())
    stream.flush()


async def receive_frame(stream: StreamReader) -> Frame | None:
    """The next frame of an asyncio stream; None when the other side is gone."""
    try:
        lengths = await stream.readexactly(_LENGTHS.size)
        header_size, payload_size = _LENGTHS.unpack(lengths)
        header = await stream.readexactly(header_size)
        payload = await stream.readexactly(payload_size)
    except (IncompleteReadError, ConnectionError):
        return None
    return Frame(json.loads(header), payload)
