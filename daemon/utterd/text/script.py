"""Which writing systems a text uses, and which of them a language can read."""

import unicodedata
from collections.abc import Iterable

_SCRIPT_BY_NAME_PREFIX = {
    "CJK": "Han",
    "IDEOGRAPHIC": "Han",
    "HIRAGANA": "Kana",
    "KATAKANA": "Kana",
    "KATAKANA-HIRAGANA": "Kana",
    "HANGUL": "Hangul",
    "LATIN": "Latin",
    # Letters of formulas, which every language reads by name.
    "GREEK": "Greek",
}

_SCRIPTS_OF_LANGUAGE = {
    "zh": frozenset({"Han", "Latin", "Greek"}),
    "yue": frozenset({"Han", "Latin", "Greek"}),
    "ja": frozenset({"Han", "Kana", "Latin", "Greek"}),
    "ko": frozenset({"Hangul", "Han", "Latin", "Greek"}),
    "en": frozenset({"Latin", "Greek"}),
}

# In this order: Japanese and Korean texts hold Han characters too.
_PRIMARY_LANGUAGE = {"Kana": "ja", "Hangul": "ko", "Han": "zh"}

# Apostrophes and tone letters, which go with letters of any script.
_NO_SCRIPT = "Modifier"


def script_of(letter: str) -> str:
    """Han, Kana, Hangul, Latin, Greek, or the first word of the letter's Unicode name.

    Letters of a special width, height or style (half-width, superscript, mathematical) are of
    the script of the letter that they stand for.
    """
    plain = unicodedata.normalize("NFKC", letter)[0]
    prefix = unicodedata.name(plain, "UNNAMED").split(" ", 1)[0]
    return _SCRIPT_BY_NAME_PREFIX.get(prefix, prefix.capitalize())


def scripts_in(text: str) -> frozenset[str]:
    """The scripts of all letters in a text; digits, marks and symbols belong to none."""
    letters = (char for char in set(text) if unicodedata.category(char)[0] == "L")
    return frozenset(map(script_of, letters)) - {_NO_SCRIPT}


def scripts_read_by(languages: Iterable[str]) -> frozenset[str]:
    """The scripts that a voice of these languages can read; of unknown languages, Latin."""
    return frozenset().union(
        *(_SCRIPTS_OF_LANGUAGE.get(tag.split("-")[0], frozenset({"Latin"})) for tag in languages)
    )


def is_speakable(text: str) -> bool:
    """Whether there is a letter or a digit to say."""
    return any(unicodedata.category(char)[0] in "LN" for char in text)


def guess_language(text: str, *, default: str) -> str:
    """The language of a text by its scripts: kana means Japanese, Hangul Korean, Han Chinese."""
    scripts = scripts_in(text)
    for script, language in _PRIMARY_LANGUAGE.items():
        if script in scripts:
            return language
    return default
