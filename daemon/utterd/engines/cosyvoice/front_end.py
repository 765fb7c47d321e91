"""What CosyVoice reads aloud: sentences with their numbers written out, packed into segments.

Numbers are written out by wetext, with every option that deletes something left off: upstream's
defaults drop 啊 and 呃, and 儿 at the end of a word. English, Chinese and Cantonese, and Japanese
have grammars; in Korean, the model reads digits itself. Each sentence is read in the language of
its own letters, so that "Room 806" is English in the middle of a Chinese text.
"""

import re
from collections.abc import Iterable, Iterator
from functools import partial

import structlog
import wetext

from utterd.engines.cosyvoice.numbers import prepare
from utterd.engines.cosyvoice.tokenizer import load_tokenizer
from utterd.text.pack import SegmentSize, read_packed
from utterd.text.reading import Reading
from utterd.text.script import scripts_in

FRONT_END_VERSION = "1"
"""Part of the model's digest: it changes when the same text would be read differently."""

SEGMENT_SIZE = SegmentSize(max_units=80, min_units=60, merge_below=20)

# Characters that count as one unit each; other scripts count by their tokens.
_WIDE = re.compile(r"[\u3000-\u30ff\u3400-\u9fff\uf900-\ufaff\uff00-\uff65]")
# Blanks that stand only between characters of scripts that write none.
_WIDE_BLANK = re.compile(rf"(?<={_WIDE.pattern})\s+(?={_WIDE.pattern})")
# Characters that Chinese can hardly do without and Japanese does not write.
_CHINESE_ALONE = re.compile("[个们这那你您她它吗呢没说还让给对过时会来为么]")
# What a grammar has to see. Other text is left as it is, for the grammars are slow.
_WRITTEN_OUT = {"zh": re.compile(r"\d"), "ja": re.compile(r"\d"), "en": re.compile(r"[\d%&@#°]")}
# wetext escapes these, and what stands between them is read alike alone.
_UNREADABLE = re.compile(r'(["\\]+)')
_GRAMMARS = {"zh": "zh", "yue": "zh", "ja": "ja", "en": "en"}
# wetext takes a millisecond a character of numbers, and holds up the whole process for it.
_WRITTEN_AT_ONCE_CHARS = 100
_CHUNK_ENDS = " ,;，、；"
_SUPERSCRIPTS = str.maketrans({"²": "平方", "³": "立方"})
_STOPS = tuple('.!?;:…。！？；："”」』)）')

log = structlog.get_logger(__name__)


def read(text: str, *, language: str, normalize: bool) -> Iterable[Reading]:
    """Read a text in segments of several sentences; see `EngineModule.read`."""
    return read_packed(
        text,
        size=SEGMENT_SIZE,
        measure=units,
        spoken_form=partial(spoken_form, language=language, normalize=normalize),
    )


def units(text: str) -> int:
    """The length of a text: its Chinese and Japanese characters, and the tokens of the rest."""
    rest, wide = _WIDE.subn(" ", text)
    return wide + load_tokenizer().count(" ".join(rest.split()))


def spoken_form(sentence: str, *, language: str, normalize: bool) -> str:
    """Write out the numbers of one sentence.

    Args:
        sentence: repaired text.
        language: BCP 47 tag of the job, for what its own letters leave open.
        normalize: False leaves numbers, dates and units as they are.
    """
    own = language_of(sentence, default=language)
    grammar = _GRAMMARS.get(own)
    if normalize and grammar is not None:
        sentence = _written_out(sentence, grammar)
    sentence = _WIDE_BLANK.sub("", " ".join(sentence.split()))
    # Without a stop at its end, the model may not find one either.
    if not sentence.endswith(_STOPS):
        sentence = f"{sentence.rstrip(',，、')}{'.' if own in ('en', 'ko') else '。'}"
    return sentence


def language_of(sentence: str, *, default: str) -> str:
    """The language of a sentence by its letters: `zh`, `yue`, `ja`, `ko` or `en`.

    Args:
        sentence: any text.
        default: the job's language, which decides where the letters don't: of digits, and of
            Chinese characters that are Japanese ones too.
    """
    primary = default.split("-", maxsplit=1)[0]
    scripts = scripts_in(sentence)
    if "Kana" in scripts:
        return "ja"
    if "Hangul" in scripts:
        return "ko"
    if "Han" in scripts:
        is_japanese = primary == "ja" and not _CHINESE_ALONE.search(sentence)
        return primary if primary == "yue" or is_japanese else "zh"
    return "en" if scripts else primary


def _written_out(sentence: str, grammar: str) -> str:
    written = "".join(
        _by_wetext(part, grammar) if _WRITTEN_OUT[grammar].search(part) else part
        for whole in _UNREADABLE.split(prepare(sentence, grammar))
        for part in _chunks(whole)
    )
    return written.translate(_SUPERSCRIPTS) if grammar == "zh" else written


def _chunks(text: str) -> Iterator[str]:
    """Cut a long text where no number is, as far as there is such a place."""
    while len(text) > _WRITTEN_AT_ONCE_CHARS:
        places = (text.rfind(mark, 1, _WRITTEN_AT_ONCE_CHARS) for mark in _CHUNK_ENDS)
        end = max(places) + 1 or _WRITTEN_AT_ONCE_CHARS
        yield text[:end]
        text = text[end:]
    yield text


def _by_wetext(text: str, grammar: str) -> str:
    core = text.strip()
    blank_before, _, blank_after = text.partition(core)
    try:
        written = wetext.normalize(" ".join(core.split()), lang=grammar)
    except (AssertionError, RuntimeError) as error:
        # Its grammars don't know everything; then the model reads what was written.
        log.warning("not_written_out", chars=len(text), grammar=grammar, error=type(error).__name__)
        return text
    return f"{blank_before}{written or core}{blank_after}"
