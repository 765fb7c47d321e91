"""Object names: made from a hash, so that a client's text is never part of a path."""

import re

MAX_OBJECT_NAME_BYTES = 1024
"""The limit of S3 for a name in UTF-8."""

_KEY = re.compile(r"[0-9a-f]{64}")
_EXTENSION = re.compile(r"[a-z0-9]+(\.[a-z0-9]+)*")


def object_name(prefix: str, key_hex: str, extension: str) -> str:
    """Return `{prefix}{key[:2]}/{key}.{extension}`, the name of a request's object.

    The two leading digits spread the objects over 256 folders, which a directory, a
    listing and a lifecycle rule all handle better than one.

    Args:
        prefix: what all names begin with: empty, or such as `speech/`.
        key_hex: the request's SHA-256 as 64 lower-case hexadecimal digits.
        extension: such as `wav`, or `marks.json` for a sidecar; without the leading dot.

    Raises:
        ValueError: a part is malformed.
    """
    validate_prefix(prefix)
    if not _KEY.fullmatch(key_hex):
        raise ValueError("A key is 64 lower-case hexadecimal digits")
    if not _EXTENSION.fullmatch(extension):
        raise ValueError(f"{extension!r} is no file name extension")
    return f"{prefix}{key_hex[:2]}/{key_hex}.{extension}"


def validate_prefix(prefix: str) -> str:
    """Return the prefix as it is.

    Raises:
        ValueError: a name that begins like this could leave the store's root, would be
            read differently by proxies, or leaves no room for the rest of the name.
    """
    # What follows the last slash is the beginning of a segment: it may be empty.
    _validate_segments(prefix, following="x")
    if len(prefix.encode()) > MAX_OBJECT_NAME_BYTES // 2:
        raise ValueError(f"The prefix is longer than {MAX_OBJECT_NAME_BYTES // 2} bytes")
    return prefix


def validate_object_name(name: str) -> str:
    """Return the name as it is.

    Raises:
        ValueError: the name is empty or too long, or could leave the store's root.
    """
    _validate_segments(name)
    if len(name.encode()) > MAX_OBJECT_NAME_BYTES:
        raise ValueError(f"The object name is longer than {MAX_OBJECT_NAME_BYTES} bytes")
    return name


def _validate_segments(name: str, following: str = "") -> None:
    if not name.isprintable():
        # Takes the lone surrogates along, which have no UTF-8.
        raise ValueError(f"{name!r} holds a control character")
    if "\\" in name:
        raise ValueError(f"{name!r} holds a backslash; write a slash")
    for segment in f"{name}{following}".split("/"):
        if not segment:
            raise ValueError(f"{name!r} has an empty part; leave the needless slash out")
        # Hidden names are the directory store's own, and `..` is the way out of it.
        if segment.startswith("."):
            raise ValueError(f"{name!r} has a part that begins with a dot")
