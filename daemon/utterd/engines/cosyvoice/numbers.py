"""What wetext misreads, written so that it does not.

wetext (the grammars that upstream CosyVoice uses) reads a mobile number as a sum, the second dot
of a version as a decimal point and a thousands comma as a pause, takes time by the square of a
number's length, mixes up 二 and 两, drops the zero of $5.20, and fails on 6€ and #5.
"""

import re

# Longer ones are codes, which nobody reads as a number.
_MAX_NUMBER_DIGITS = 9
_DIGITS = {"zh": "零一二三四五六七八九", "ja": "〇一二三四五六七八九"}
_ENGLISH_DIGITS = (
    *("zero", "one", "two", "three", "four"),
    *("five", "six", "seven", "eight", "nine"),
)
_POINT = {"zh": "点", "ja": "点", "en": " point "}
# China's mobile numbers, whose 1 is read so that it can't be heard as a 7.
_MOBILE_NUMBER = re.compile(r"(?<!\d)1[3-9]\d{9}(?!\d)")
_GROUPED = re.compile(r"(?<![\d,.])\d{1,3}(?:,\d{3})+(?![\d,])")
_DOTTED = re.compile(r"(?<![\d.])\d+(?:\.\d+){2,}(?!\d)")
_CODE = re.compile(rf"\d{{{_MAX_NUMBER_DIGITS + 1},}}")
# The second of a row or of a month.
_SECOND = re.compile(r"(?<=第)2(?!\d)|(?<!\d)2(?=[日号])")
# Two of something; not an ordinal, and not a part of a larger number.
_TWO_OF = re.compile(r"(?<![\d.,:第\-–~～])2(?=[个位只条张件双次天周名本杯台辆间家种]|年(?!级))")
# "3–5", "3～5": of the signs of a range, wetext knows the hyphen and the narrow tilde.
_RANGE = re.compile(r"(?<=[\d%℃])\s?[–—~～〜]\s?(?=\d)")
_NUMBER_SIGN = re.compile(r"#(?=\d)")
_CURRENCIES = {
    "$": ("dollar", "cent"),
    "£": ("pound", "penny"),
    "€": ("euro", "cent"),
    "¥": ("yen", ""),
}
_AMOUNT = re.compile(
    r"(?P<before>[$£€¥])\s?(?P<whole>\d[\d,]*)(?:\.(?P<part>\d\d)(?!\d))?(?!\d|\.\d|\s?[mb]illion)"
    r"|(?<![\d.])(?P<number>\d[\d,]*)(?:\.(?P<cents>\d\d))?\s?(?P<after>[$£€¥])"
)


def prepare(text: str, language: str) -> str:
    """Write out the numbers that wetext must not see.

    Args:
        text: a sentence, or a part of one.
        language: `zh`, `ja` or `en`.
    """
    if language == "zh":
        text = _MOBILE_NUMBER.sub(lambda found: spell(found[0], "zh").replace("一", "幺"), text)
        text = _RANGE.sub("到", text)
        text = _SECOND.sub("二", text)
        text = _TWO_OF.sub("两", text)
    elif language == "ja":
        text = _RANGE.sub("から", text)
    else:
        text = _NUMBER_SIGN.sub("number ", text)
        text = _AMOUNT.sub(_amount_in_english, text)
    text = _GROUPED.sub(lambda found: found[0].replace(",", ""), text)
    text = _DOTTED.sub(
        lambda found: _POINT[language].join(spell(part, language) for part in found[0].split(".")),
        text,
    )
    return _CODE.sub(lambda found: spell(found[0], language), text)


def spell(digits: str, language: str) -> str:
    """Digit by digit."""
    if language == "en":
        # Apart from the letter before: v1.2.3.
        return " " + " ".join(_ENGLISH_DIGITS[int(digit)] for digit in digits)
    return "".join(_DIGITS[language][int(digit)] for digit in digits)


def _amount_in_english(found: re.Match[str]) -> str:
    unit, part_unit = _CURRENCIES[found["before"] or found["after"]]
    whole = (found["whole"] or found["number"]).replace(",", "")
    part = found["part"] or found["cents"]
    # Not by its value: a row of thousands of digits is no number.
    plural = "" if unit == "yen" or whole.lstrip("0") == "1" else "s"
    amount = f"{whole} {unit}{plural}"
    if not part or not int(part) or not part_unit:
        return amount
    return f"{amount} and {int(part)} {_plural(part_unit, int(part))}"


def _plural(unit: str, count: int) -> str:
    if count == 1:
        return unit
    return "pence" if unit == "penny" else f"{unit}s"
