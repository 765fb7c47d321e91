"""Numbers that hibari's lexicon can't read, written so that it can."""

import re
import unicodedata

# Longer ones are codes, and nobody follows a number of that length.
_MAX_BARE_DIGITS = 15
# The lexicon knows no word for a thousand octillions.
_MAX_GROUPED_DIGITS = 30

_NUMBER = re.compile(r"(?P<minus>(?<![\w-])-)?(?P<number>\d(?:[.,]*\d)*)")
_FRACTION_SLASH = "\u2044"


def plain_digits(text: str, *, keep: str = "") -> str:
    """Digits of every script and style in ASCII, vulgar fractions with a slash.

    Args:
        text: any text.
        keep: characters that stay, since something else writes them out.
    """
    if text.isascii():
        return text
    return "".join(
        char if char.isascii() or char in keep else _plain(char, before)
        for before, char in zip(" " + text, text, strict=False)
    )


def _plain(char: str, before: str) -> str:
    if char == _FRACTION_SLASH:
        return "/"
    match unicodedata.category(char):
        case "Nd":
            return str(unicodedata.decimal(char))
        case "No":
            value = unicodedata.numeric(char)
            if value.is_integer():
                # Superscript, circled and bracketed numbers stand apart from their neighbours.
                return f" {value:.0f} "
            fraction = unicodedata.normalize("NFKC", char).replace(_FRACTION_SLASH, "/")
            return f"{' and ' if before.isdigit() else ' '}{fraction} "
        case _:
            return char


def spell_codes(text: str) -> str:
    """Write numbers digit by digit where the lexicon would fail or lose a leading zero.

    Args:
        text: with ASCII digits only.
    """
    return _NUMBER.sub(_spell_code, text)


def _spell_code(match: re.Match[str]) -> str:
    number = match["number"]
    limit = _MAX_GROUPED_DIGITS if "," in number else _MAX_BARE_DIGITS
    parts = number.replace(",", "").split(".")
    is_too_long = max(map(len, parts)) > limit
    has_leading_zero = number.isdigit() and number[0] == "0" and len(number) > 1
    is_clock_time = ":" in (match.string[match.start() - 1 : match.start()], _next(match))
    if is_too_long or (has_leading_zero and not is_clock_time):
        return f" {match['minus'] or ''}{' point '.join(' '.join(part) for part in parts)} "
    return match.group()


def _next(match: re.Match[str]) -> str:
    return match.string[match.end() : match.end() + 1]
