"""What hibari reads aloud for a piece of text."""

import re
from functools import partial

from hibari.g2p.normalize import normalize as normalize_english

from utterd.engines.hibari.numbers import plain_digits, spell_codes
from utterd.text.reading import Reading, read_sentences

# Under 400 phonemes, the longest input of the model's training, also for text full of numbers.
MAX_SEGMENT_CHARS = 240

# hibari reads `[word](/phonemes/)` as a pronunciation; a job's text has no control sequences.
_PHONEME_LINK = re.compile(r"\](?=\()")
# "3 < 5" is a comparison; "<test>" is a word in brackets.
_ANGLE_BRACKETS = re.compile(r"(?<![\d\s])\s*[<>]\s*|\s*[<>]\s*(?![\d\s])")
# hibari reads these as powers.
_POWERS = "²³"
# The lexicon's time grows with the cube of the tokens between two spaces: seconds for a hash.
_MAX_TOKENS_UNSPACED = 24
_UNSPACED = re.compile(rf"\S{{{_MAX_TOKENS_UNSPACED + 1},}}")
_TOKEN = re.compile(r"[A-Z]?[^\W\d_A-Z]+|[A-Z]+|\d+|\S")


def read(text: str, *, language: str, normalize: bool) -> list[Reading]:  # noqa: ARG001 - the protocol's
    """Sentence by sentence; see `EngineModule.read`."""
    return read_sentences(
        text,
        max_chars=MAX_SEGMENT_CHARS,
        spoken_form=partial(spoken_form, normalize=normalize),
    )


def spoken_form(text: str, *, normalize: bool) -> str:
    """Write out what is not a word.

    Args:
        text: one segment of repaired text.
        normalize: False leaves numbers, dates and units as they are, as far as hibari can say
            them.

    Returns:
        Text that hibari's lexicon reads as it stands.
    """
    text = _PHONEME_LINK.sub("] ", text).replace("|", " ")
    text = _ANGLE_BRACKETS.sub(" ", text)
    text = plain_digits(text, keep=_POWERS if normalize else "")
    if normalize:
        text = normalize_english(text)
    return " ".join(_UNSPACED.sub(_with_spaces, spell_codes(text)).split())


def _with_spaces(unspaced: re.Match[str]) -> str:
    tokens = _TOKEN.findall(unspaced.group())
    starts = range(0, len(tokens), _MAX_TOKENS_UNSPACED)
    return " ".join("".join(tokens[start : start + _MAX_TOKENS_UNSPACED]) for start in starts)
