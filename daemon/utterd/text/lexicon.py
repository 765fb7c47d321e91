"""Spoken forms of words that are written otherwise: names, abbreviations, products.

A lexicon is a file: TOML with a line `"written" = "spoken"` for each word, or the W3C's
Pronunciation Lexicon Specification 1.0 (PLS) with `grapheme` and `alias`. Its words are put in
place of what is written before the text is cut into sentences, as if each stood in SSML's `sub`:
"Dr. Lee" does not end a sentence at its first dot.
"""

import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from xml.etree.ElementTree import Element, ParseError

from defusedxml import DefusedXmlException
from defusedxml.ElementTree import fromstring

from utterd.errors import ConfigurationError
from utterd.small_file import read_small_file
from utterd.text.repair import repair
from utterd.text.script import is_speakable
from utterd_schemas.digest import canonical_json

MAX_WORDS = 2000
"""More take too long to look for in every text."""

MAX_WORD_CHARS = 200

_NAMESPACE = "{http://www.w3.org/2005/01/pronunciation-lexicon}"
# Letters and digits of scripts that part words by blanks. Chinese and Japanese have none, and
# Korean hangs its particles on the word.
_WORD_CHAR = re.compile(
    r"[^\W\u1100-\u11ff\u3040-\u30ff\u3130-\u318f\u3400-\u9fff\uac00-\ud7af\uf900-\ufaff]"
)


@dataclass(frozen=True, slots=True)
class Lexicon:
    """Words, each with its spoken form; an empty one changes nothing.

    Attributes:
        words: spoken forms by what is written, both repaired.
        digest: SHA-256 of the words, for the key; None of an empty lexicon.
    """

    words: Mapping[str, str] = field(default_factory=dict)
    digest: str | None = field(init=False, repr=False)
    _by_first_char: Mapping[str, list[str]] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        digest = sha256(canonical_json(dict(self.words))).hexdigest() if self.words else None
        by_first_char: dict[str, list[str]] = {}
        # The longest word that fits is meant.
        for word in sorted(self.words, key=len, reverse=True):
            by_first_char.setdefault(word[0], []).append(word)
        object.__setattr__(self, "digest", digest)
        object.__setattr__(self, "_by_first_char", by_first_char)

    def applied(self, text: str) -> str:
        """Repaired text with the spoken forms of all words that stand in it.

        Where signs stood close together, as in two emoji, their words are kept apart.
        """
        if not self.words:
            return text
        parts: list[str] = []
        done = position = 0
        while position < len(text):
            word = self._word_at(text, position)
            if word is None:
                position += 1
                continue
            parts += text[done:position], self.words[word]
            done = position = position + len(word)
        return "".join(_apart([*parts, text[done:]]))

    def _word_at(self, text: str, start: int) -> str | None:
        candidates = self._by_first_char.get(text[start])
        if candidates is None or _is_inside_a_word(text, start):
            return None
        for word in candidates:
            if text.startswith(word, start) and not _is_inside_a_word(text, start + len(word)):
                return word
        return None


def read_lexicon(path: Path) -> Lexicon:
    """Read a lexicon.

    Args:
        path: of a TOML file, which ends with `.toml`, or of PLS.

    Raises:
        ConfigurationError: it can't be read, or holds something else than words.
    """
    try:
        content = read_small_file(path)
    except OSError as error:
        raise ConfigurationError(
            f"speech.lexicon: {path} can't be read ({error.strerror}): name a file of words, and"
            " give the daemon's user the right to read it"
        ) from error
    entries = list((_toml if path.suffix == ".toml" else _pls)(path, content))
    if len(entries) > MAX_WORDS:
        raise _fault(path, f"has {len(entries)} words, {MAX_WORDS} are the most")
    words: dict[str, str] = {}
    for written, spoken in entries:
        word, form = (" ".join(repair(text).split()) for text in (written, spoken))
        if not word or not is_speakable(form):
            raise _fault(path, f"has a word without a spoken form: {written!a:.80}")
        if max(len(word), len(form)) > MAX_WORD_CHARS:
            raise _fault(path, f"has a word of more than {MAX_WORD_CHARS} characters")
        if words.setdefault(word, form) != form:
            raise _fault(path, f"has two spoken forms of {word!a:.80}")
    return Lexicon(words)


def _is_inside_a_word(text: str, place: int) -> bool:
    """Whether the characters on both sides of a place belong to one word."""
    return 0 < place < len(text) and all(map(_WORD_CHAR.match, text[place - 1 : place + 1]))


def _apart(parts: Sequence[str]) -> Iterator[str]:
    """The parts, with a blank between two that would read as one word."""
    last = ""
    for part in filter(None, parts):
        if _is_inside_a_word(last + part[0], len(last)):
            yield " "
        yield part
        last = part[-1]


def _toml(path: Path, content: bytes) -> Iterator[tuple[str, str]]:
    try:
        entries = tomllib.loads(content.decode())
    except (ValueError, RecursionError) as error:
        raise _fault(path, f"is no TOML ({error})") from error
    for written, spoken in entries.items():
        if not isinstance(spoken, str):
            raise _fault(path, f'has no text for {written!a:.80}: write "SQL" = "sequel"')
        yield written, spoken


def _pls(path: Path, content: bytes) -> Iterator[tuple[str, str]]:
    try:
        root = fromstring(content, forbid_dtd=True)
    except (ParseError, DefusedXmlException, ValueError, LookupError) as error:
        raise _fault(path, f"is no XML without a DTD ({type(error).__name__})") from error
    if root.tag != f"{_NAMESPACE}lexicon":
        raise _fault(path, "is no PLS: its outermost element is not the `lexicon` of PLS 1.0")
    for lexeme in root.findall(f"{_NAMESPACE}lexeme"):
        written = [_text(element) for element in lexeme.findall(f"{_NAMESPACE}grapheme")]
        alias = lexeme.find(f"{_NAMESPACE}alias")
        if alias is None:
            raise _fault(
                path,
                f"has no alias for {', '.join(map(ascii, written)):.80}: phonemes are not spoken",
            )
        for word in written:
            yield word, _text(alias)


def _text(element: Element) -> str:
    return "".join(element.itertext())


def _fault(path: Path, what: str) -> ConfigurationError:
    return ConfigurationError(
        f"speech.lexicon: {path} {what}. docs/tuning.md shows what a lexicon looks like"
    )
