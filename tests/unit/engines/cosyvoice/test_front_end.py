"""What CosyVoice reads aloud."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from utterd.engines.cosyvoice.front_end import language_of, read, spoken_form, units
from utterd.text.repair import repair
from utterd.text.script import is_speakable


def spoken(text: str, language: str = "zh") -> str:
    return spoken_form(text, language=language, normalize=True)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # T-01, T-03, T-08, T-11, T-18, T-22
        ("会议定于2024年3月5日上午9:05开始。", "会议定于二零二四年三月五日上午九点零五分开始。"),
        ("客服电话是13800138000对吧", "客服电话是幺三八零零幺三八零零零对吧。"),
        ("每次3-5片，疗程7-10天。", "每次三到五片，疗程七到十天。"),
        ("每次3～5片，疗程7–10天。", "每次三到五片，疗程七到十天。"),
        ("夜间最低-5℃，白天12℃。", "夜间最低负五摄氏度，白天十二摄氏度。"),
        ("今天下午三点开会", "今天下午三点开会。"),
        ("啊，真好看。呃，我们走吧。", "啊，真好看。呃，我们走吧。"),
        ("花儿有3朵，2个苹果，12个。", "花儿有三朵，两个苹果，十二个。"),
        ("2月2日第2天，2年级，2年。", "二月二日第二天，二年级，两年。"),
        ("用v2.3.1版本，1,234.5元。", "用v二点三点一版本，一千二百三十四点五元。"),
        ('他说“5个”和"6个"。', '他说“五个”和"六个"。'),
        ("5 m²和x³。", "五平方米和x立方。"),
        ("今天 天气 好 OK 吧。", "今天天气好 OK 吧。"),
    ],
)
def test_writes_out_chinese(text: str, expected: str):
    """Dates, times, phone numbers, ranges and signs are read as people read them."""
    assert spoken(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # T-26, T-70
        (
            "Room 806 is next to room 131.",
            "Room eight hundred and six is next to room one hundred and thirty one.",
        ),
        (
            "It costs $5.20 or £3.",
            "It costs five dollars and twenty cents or three pounds.",
        ),
        (
            "It is 1€ or $2.00, no: £3.01!",
            "It is one euro or two dollars, no: three pounds and one penny!",
        ),
        ("It costs $5 million.", "It costs five million dollars."),
        ("Seat #5 is in v1.2.3.", "Seat number five is in v one point two point three."),
        ("Call 1234567890.", "Call one two three four five six seven eight nine zero."),
        ("No digits here", "No digits here."),
    ],
)
def test_writes_out_english_also_for_a_chinese_voice(text: str, expected: str):
    """Digits between English words are English, whatever the job's language."""
    assert spoken(text, "zh") == expected
    assert spoken(text, "en") == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("明日は東京へ行きます。", "明日は東京へ行きます。"),
        ("3月5日の10:30に1,500円です", "三月五日の十時三十分に千五百円です。"),
        ("3〜5日かかる。", "三から五日かかる。"),
    ],
)
def test_writes_out_japanese(text: str, expected: str):
    """Kana make a sentence Japanese."""
    assert spoken(text) == expected


def test_leaves_korean_digits_to_the_model():
    """There is no Korean grammar; the model was trained on digits too."""
    assert spoken("사과 5개") == "사과 5개."


def test_without_normalisation_numbers_stay():
    """A job may ask for its own spelling."""
    assert spoken_form("5个", language="zh", normalize=False) == "5个。"


@pytest.mark.parametrize(
    ("text", "default", "language"),
    [
        ("你好", "auto", "zh"),
        ("你好", "yue", "yue"),
        ("東京", "ja", "ja"),
        ("你好 hello", "en", "zh"),
        ("hello", "zh", "en"),
        ("안녕 hello", "en", "ko"),
        ("東京へ", "zh", "ja"),
        ("123", "yue-HK", "yue"),
    ],
)
def test_a_sentence_has_the_language_of_its_letters(text: str, default: str, language: str):
    """The job's language decides only what the letters leave open."""
    assert language_of(text, default=default) == language


def test_counts_characters_of_chinese_and_tokens_of_the_rest():
    """Eighty units are about the same time of speech in each script."""
    assert units("你好，世界。") == 6
    assert units("Hello, world!") == 4
    assert units("你好 Hello, world!") == 6


def test_a_control_token_of_a_user_is_read_as_text():
    """`<|zh|>` has no power, and loses nothing of what stands around it."""
    (reading,) = read("a<|zh|>b", language="en", normalize=True)
    assert reading.spoken == "a<|zh|>b."


def test_a_mixed_text_keeps_each_sentence_in_its_language():
    """Sentences that share a segment are written out one by one."""
    text = "我住806房。 Room 806 is here. 部屋は806です。"
    joined = "".join(reading.spoken for reading in read(text, language="zh", normalize=True))
    assert joined == "我住八百零六房。Room eight hundred and six is here.部屋は八百六です。"


@given(st.text(alphabet='字a1.,-/:$€%~ 五é“"\\<|>カ가\n', max_size=120) | st.text(max_size=80))
def test_no_letter_is_lost_and_nothing_raises(text: str):
    """Whatever stands beside numbers, every letter of the text is still there, in order."""
    repaired = repair(text)
    readings = list(read(repaired, language="zh", normalize=False))
    joined = "".join(reading.spoken for reading in readings)
    letters = [char for char in repaired if is_speakable(char)]
    assert [char for char in joined if is_speakable(char)] == letters
    for reading in read(repaired, language="zh", normalize=True):
        assert is_speakable(reading.spoken)


@pytest.mark.parametrize("unit", ["5", "5 ", "5.", "$5", "5-", "字5", "1,000"])
def test_digits_without_end_take_linear_time(unit: str):
    """The grammars' time grows with the square of a number, so they never see a long one."""
    started = time.monotonic()
    readings = list(read(unit * (2000 // len(unit)), language="zh", normalize=True))
    assert readings
    assert time.monotonic() - started < 5.0


@pytest.mark.parametrize("language", ["zh", "en", "ja"])
def test_an_amount_of_thousands_of_digits_is_read_digit_by_digit(language: str):
    """It is no number that anybody would name, and no fault of the daemon's either."""
    readings = list(read(f"It costs ${'1' * 5000} now.", language=language, normalize=True))
    assert len("".join(reading.spoken for reading in readings)) > 5000


def test_a_long_row_of_numbers_is_never_written_out_in_one_go(monkeypatch):
    """Wetext holds up the whole process while it works, so it gets a little at a time."""
    seen: list[int] = []
    monkeypatch.setattr("wetext.normalize", lambda text, **_options: seen.append(len(text)) or text)
    text = ", ".join(map(str, range(2000)))
    assert list(read(text, language="en", normalize=True))
    assert max(seen) <= 100
