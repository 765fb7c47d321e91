"""Unicode repair: the first step of the front end."""

import re
import unicodedata

_LINE_BREAKS = re.compile(r"\r\n?|[\u0085\u2028\u2029\v\f]")
_FULL_WIDTH_OFFSET = 0xFEE0
_FULL_WIDTH_ASCII = {
    code: code - _FULL_WIDTH_OFFSET
    for code in range(0xFF01, 0xFF5F)
    if chr(code - _FULL_WIDTH_OFFSET).isalnum()
}
_INVISIBLE_CATEGORIES = frozenset({"Cc", "Cf", "Co", "Cs", "Cn"})


def repair(text: str) -> str:
    """Make text of any origin safe to segment and to hash.

    Folds full-width letters and digits to ASCII, composes characters (NFC), unifies line
    breaks, turns tabs into spaces, and drops what can't be spoken: lone surrogates, control
    and format characters, private and unassigned code points. Punctuation keeps its width,
    since sentence ends depend on it. Repaired text stays as it is when repaired again.
    """
    text = _LINE_BREAKS.sub("\n", text.replace("\t", " "))
    text = "".join(
        char
        for char in text
        if char == "\n" or unicodedata.category(char) not in _INVISIBLE_CATEGORIES
    )
    # Folding first: a full-width letter composes with no accent, its ASCII twin does.
    return unicodedata.normalize("NFC", text.translate(_FULL_WIDTH_ASCII))
