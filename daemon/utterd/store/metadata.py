"""What object metadata can carry: it travels as HTTP headers, in ASCII and 2 KB."""

import base64
import re
from collections.abc import Mapping
from urllib.parse import quote, unquote

METADATA_LIMIT_BYTES = 2048
"""The limit of S3 for all names and values of one object together."""

_NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")  # nginx drops headers with an underscore
_VALUE = re.compile(r"[!-~]([ -~]*[!-~])?")  # white space at an end is lost on the way
_BASE64_MARK = "="


def validate_metadata(metadata: Mapping[str, str]) -> None:
    """Check that every store brings this metadata back as it is.

    Raises:
        ValueError: a name or a value that headers don't carry, or too much in all.
    """
    for name, value in metadata.items():
        if not _NAME.fullmatch(name):
            raise ValueError(f"{name!r} is no metadata name: lower-case words and hyphens only")
        if not _VALUE.fullmatch(value):
            raise ValueError(f"The metadata value of {name!r} is not plain ASCII; encode it")
    size_bytes = sum(len(name) + len(value) for name, value in metadata.items())
    if size_bytes > METADATA_LIMIT_BYTES:
        raise ValueError(f"{size_bytes} bytes of metadata, the limit is {METADATA_LIMIT_BYTES}")


def encode_text(text: str) -> str:
    """Encode any text, lone surrogates included, as a value that `validate_metadata` accepts.

    Plain text stays legible in percent-encoding. Text that is mostly something else
    would grow up to twelvefold, so it goes as URL-safe Base64 behind an equals sign.
    """
    data = text.encode("utf-8", "surrogatepass")
    as_percent = quote(data, safe="/:@,+")
    as_base64 = _BASE64_MARK + base64.urlsafe_b64encode(data).decode("ascii")
    return as_percent if text and len(as_percent) <= len(as_base64) else as_base64


def decode_text(value: str) -> str:
    """Undo `encode_text`.

    Raises:
        ValueError: the value was made by something else.
    """
    if value.startswith(_BASE64_MARK):
        encoded = value.removeprefix(_BASE64_MARK)
        data = base64.b64decode(encoded, altchars=b"-_", validate=True)
        return data.decode("utf-8", "surrogatepass")
    return unquote(value, encoding="utf-8", errors="surrogatepass")
