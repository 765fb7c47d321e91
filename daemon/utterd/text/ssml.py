"""The part of SSML 1.1 that utterd speaks: speak, p, s, break, sub, say-as, prosody.

Source of elements, attributes and their meaning: W3C, "Speech Synthesis Markup Language
(SSML) Version 1.1", 2010.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from xml.etree.ElementTree import Element, ParseError

from defusedxml import DefusedXmlException
from defusedxml.ElementTree import fromstring

from utterd.errors import InvalidSsmlError
from utterd.text.run import Run
from utterd.text.segment import PARAGRAPH_PAUSE_S, SENTENCE_PAUSE_S

MAX_DEPTH = 16
MAX_BREAK_S = 10.0

_SPOKEN_ELEMENTS = ("speak", "p", "s", "break", "sub", "say-as", "prosody")
_NAMESPACE = re.compile(r"^\{[^}]*\}")
_DURATION = re.compile(r"(\d{1,6}(?:\.\d{1,6})?)(ms|s)")
_PERCENTAGE = re.compile(r"(\d{1,4}(?:\.\d{1,4})?)%")
_DECIBELS = re.compile(r"([+-]\d{1,3}(?:\.\d{1,4})?)dB")

_BREAK_S = {
    "none": 0.0,
    "x-weak": 0.1,
    "weak": 0.2,
    "medium": SENTENCE_PAUSE_S,
    "strong": PARAGRAPH_PAUSE_S,
    "x-strong": 1.2,
}
_RATE = {
    "x-slow": 0.5,
    "slow": 0.75,
    "medium": 1.0,
    "default": 1.0,
    "fast": 1.3,
    "x-fast": 1.7,
}
_VOLUME_DB = {
    "x-soft": -12.0,
    "soft": -6.0,
    "medium": 0.0,
    "default": 0.0,
    "loud": 3.0,
    "x-loud": 6.0,
}
_SPELLED = frozenset({"characters", "spell-out", "digits", "telephone", "verbatim"})
_READ_AS_WRITTEN = frozenset({"cardinal", "number", "ordinal", "date", "time", "currency", "unit"})


@dataclass(frozen=True, slots=True)
class _Manner:
    rate: float = 1.0
    gain: float = 1.0
    spelled: bool = False


@dataclass(frozen=True, slots=True)
class _Words:
    text: str
    manner: _Manner


@dataclass(frozen=True, slots=True)
class _Pause:
    duration_s: float
    ends_sentence: bool


def parse_ssml(ssml: str) -> tuple[Run, ...]:
    """Cut an SSML document into runs.

    Raises:
        InvalidSsmlError: not well-formed, not SSML, nested too deeply, with a document type
            or entities of its own, or with elements and values that utterd does not speak.
    """
    try:
        root = fromstring(ssml, forbid_dtd=True)
    except (ParseError, DefusedXmlException, ValueError):
        raise InvalidSsmlError(
            "the SSML is not well-formed XML, or has a document type: send one <speak> element,"
            " with & and < written as &amp; and &lt;"
        ) from None
    if _name(root) != "speak":
        raise InvalidSsmlError("the SSML's outermost element must be <speak>")
    return tuple(_runs(_walk(root, _Manner(), depth=1)))


def _runs(parts: Iterator[_Words | _Pause]) -> Iterator[Run]:
    """Join neighbouring words of one manner, and hang each pause on the run before it.

    White space between elements is no run: a pause would be lost on it. Breaks add up; the ends
    of sentences and paragraphs are no longer than the longest of them. A break before the first
    word is silent anyway.
    """
    run: Run | None = None
    manner: _Manner | None = None
    for part in parts:
        if isinstance(part, _Pause):
            if run is not None:
                pause_s = (
                    max(run.pause_after_s, part.duration_s)
                    if part.ends_sentence
                    else run.pause_after_s + part.duration_s
                )
                run = replace(
                    run,
                    pause_after_s=pause_s,
                    ends_sentence=run.ends_sentence or part.ends_sentence,
                )
                manner = None
        elif run is not None and part.manner == manner:
            run = replace(run, text=run.text + part.text)
        elif part.text.strip():
            if run is not None:
                yield run
            manner = part.manner
            run = Run(text=part.text, rate=manner.rate, gain=manner.gain, ends_sentence=False)
    if run is not None:
        yield replace(run, ends_sentence=True)


def _walk(element: Element, manner: _Manner, depth: int) -> Iterator[_Words | _Pause]:
    if depth > MAX_DEPTH:
        raise InvalidSsmlError(f"the SSML is nested deeper than {MAX_DEPTH} elements: flatten it")
    yield from _words(element.text, manner)
    for child in element:
        yield from _speak_child(child, manner, depth + 1)
        yield from _words(child.tail, manner)


def _speak_child(child: Element, manner: _Manner, depth: int) -> Iterator[_Words | _Pause]:
    match _name(child):
        case "p":
            yield from _walk(child, manner, depth)
            yield _Pause(PARAGRAPH_PAUSE_S, ends_sentence=True)
        case "s":
            yield from _walk(child, manner, depth)
            yield _Pause(SENTENCE_PAUSE_S, ends_sentence=True)
        case "break":
            yield _Pause(_break_s(child), ends_sentence=False)
        case "sub":
            yield from _words(_required(child, "alias"), manner)
        case "say-as":
            yield from _walk(child, replace(manner, spelled=_is_spelled(child)), depth)
        case "prosody":
            yield from _walk(child, _prosody(child, manner), depth)
        case _:
            raise InvalidSsmlError(
                "the SSML has an element that is not spoken here: use only"
                f" {', '.join(_SPOKEN_ELEMENTS)}",
                elements=[*_SPOKEN_ELEMENTS],
            )


def _words(text: str | None, manner: _Manner) -> Iterator[_Words]:
    if not text:
        return
    if manner.spelled:
        yield _Words(f" {' '.join(''.join(text.split()))} ", replace(manner, spelled=False))
    else:
        yield _Words(re.sub(r"\s+", " ", text), manner)


def _break_s(element: Element) -> float:
    time = element.get("time")
    if time is None:
        strength = element.get("strength", "medium")
        if strength not in _BREAK_S:
            raise InvalidSsmlError(f"a break's strength must be one of {', '.join(_BREAK_S)}")
        return _BREAK_S[strength]
    match = _DURATION.fullmatch(time)
    duration_s = float(match[1]) / (1000 if match[2] == "ms" else 1) if match else None
    if duration_s is None or duration_s > MAX_BREAK_S:
        raise InvalidSsmlError(
            f"a break's time must be such as 500ms or 2s, and at most {MAX_BREAK_S:g} s"
        )
    return duration_s


def _is_spelled(element: Element) -> bool:
    kind = _required(element, "interpret-as")
    if kind not in _SPELLED | _READ_AS_WRITTEN:
        raise InvalidSsmlError(
            f"say-as must be interpreted as one of {', '.join(sorted(_SPELLED | _READ_AS_WRITTEN))}"
        )
    return kind in _SPELLED


def _prosody(element: Element, manner: _Manner) -> _Manner:
    if not set(element.keys()) <= {"rate", "volume"}:
        raise InvalidSsmlError("prosody takes rate and volume here: leave the others out")
    return replace(
        manner,
        rate=manner.rate * _rate(element.get("rate", "default")),
        gain=manner.gain * 10 ** (_volume_db(element.get("volume", "default")) / 20),
    )


def _rate(value: str) -> float:
    match = _PERCENTAGE.fullmatch(value)
    rate = float(match[1]) / 100 if match else _RATE.get(value)
    if rate is None or not 0.5 <= rate <= 2.0:  # noqa: PLR2004 - the message names them
        raise InvalidSsmlError(f"a rate must be from 50% to 200%, or one of {', '.join(_RATE)}")
    return rate


def _volume_db(value: str) -> float:
    match = _DECIBELS.fullmatch(value)
    volume_db = float(match[1]) if match else _VOLUME_DB.get(value)
    if volume_db is None or not -40 <= volume_db <= 6:  # noqa: PLR2004 - the message names them
        raise InvalidSsmlError(
            f"a volume must be from -40dB to +6dB, or one of {', '.join(_VOLUME_DB)}"
        )
    return volume_db


def _required(element: Element, attribute: str) -> str:
    value = element.get(attribute)
    if value is None:
        raise InvalidSsmlError(f"{_name(element)} needs the attribute {attribute}")
    return value


def _name(element: Element) -> str:
    # Comments and processing instructions have functions for tags; the parser drops them.
    return _NAMESPACE.sub("", str(element.tag))
