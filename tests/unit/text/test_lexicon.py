"""Spoken forms of words that are written otherwise."""

import pytest

from utterd.errors import ConfigurationError
from utterd.small_file import MAX_BYTES
from utterd.text.lexicon import MAX_WORD_CHARS, MAX_WORDS, Lexicon, read_lexicon

PLS = """<?xml version="1.0" encoding="UTF-8"?>
<lexicon version="1.0" xmlns="http://www.w3.org/2005/01/pronunciation-lexicon"
    alphabet="ipa" xml:lang="en-US">
  <lexeme><grapheme>SQL</grapheme><grapheme>S.Q.L.</grapheme><alias>sequel</alias></lexeme>
  <lexeme><grapheme>W3C</grapheme><alias>World Wide Web Consortium</alias></lexeme>
</lexicon>
"""


def lexicon(tmp_path, content, name="words.toml"):
    path = tmp_path / name
    path.write_text(content, encoding="utf-8")
    return read_lexicon(path)


@pytest.mark.parametrize(
    ("text", "spoken"),
    [
        ("SQL and sql, MySQL, SQLite.", "sequel and sql, MySQL, SQLite."),
        ("(SQL)", "(sequel)"),
        ("Dr. Lee", "Doctor Lee"),
        ("New York, New Yorkers", "the city, New Yorkers"),
        ("我去重庆玩", "我去虫庆玩"),
        ("서울은 크다", "서우르은 크다"),
        ("C++ or C", "C plus plus or C"),
        ("100€!", "100 Euro!"),
    ],
)
def test_whole_words_are_spoken_as_the_lexicon_says(text, spoken):
    """Between letters of scripts that write blanks nothing is; in the others everywhere."""
    words = {
        "SQL": "sequel",
        "Dr.": "Doctor",
        "New York": "the city",
        "重庆": "虫庆",
        "서울": "서우르",
        "C++": "C plus plus",
        "€": " Euro",
    }
    assert Lexicon(words).applied(text) == spoken


def test_the_longest_word_is_meant_and_no_spoken_form_is_read_again():
    """The order in the file says nothing."""
    words = {"New": "old", "New York": "New", "old": "new"}
    assert Lexicon(words).applied("New York, New") == "New, old"


@pytest.mark.parametrize(
    ("text", "spoken"),
    [
        ("ok 👍👍!", "ok thumbs up thumbs up!"),
        ("👍ok", "thumbs up ok"),
        ("C++👍", "see plus plus thumbs up"),
        ("重庆👍", "重庆thumbs up"),
    ],
)
def test_signs_without_a_blank_between_them_become_words_with_one(text, spoken):
    """Where a script has blanks between its words."""
    words = {"👍": "thumbs up", "C++": "see plus plus"}
    assert Lexicon(words).applied(text) == spoken


def test_an_empty_lexicon_changes_nothing():
    """Not the key either."""
    assert Lexicon().applied("SQL") == "SQL"
    assert Lexicon().digest is None


def test_the_digest_is_of_the_words_alone(tmp_path):
    """The same words in another format or order give the same keys, others give others."""
    toml = lexicon(
        tmp_path,
        '"W3C" = "World Wide Web Consortium"\n"S.Q.L." = "sequel"\n"ＳＱＬ" = " sequel "\n',
    )
    pls = lexicon(tmp_path, PLS, "words.pls")
    assert toml == pls
    assert toml.digest == pls.digest != Lexicon({"SQL": "squeal"}).digest


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("a.toml", "SQL sequel", "is no TOML"),
        ("a.toml", "SQL = 3", "has no text for 'SQL'"),
        ("a.toml", "[SQL]\nen = 'sequel'", "has no text for 'SQL'"),
        ("a.toml", "SQL = ''", "without a spoken form"),
        ("a.toml", "SQL = '…'", "without a spoken form"),
        ("a.toml", "'\\u200b' = 'x'\n'' = 'x'", "without a spoken form"),
        ("a.toml", "'SQL' = 'a'\n'ＳＱＬ' = 'b'", "two spoken forms of 'SQL'"),
        ("a.toml", f"SQL = '{'a' * (MAX_WORD_CHARS + 1)}'", f"more than {MAX_WORD_CHARS}"),
        ("a.toml", "\n".join(f"w{n} = 'x'" for n in range(MAX_WORDS + 1)), "2001 words"),
        ("a.toml", "#" * (MAX_BYTES + 1), "more than 1048576 bytes"),
        ("a.pls", "SQL = 'sequel'", "is no XML"),
        ("a.pls", "<lexicon/>", "is no PLS"),
        ("a.pls", f"<!DOCTYPE x [<!ENTITY a 'b'>]>{PLS.split('?>')[1]}", "is no XML without a DTD"),
        ("a.toml", f"'{'a' * 100_000}' = ''", "without a spoken form"),
        ("a.pls", PLS.replace("alias>", "phoneme>"), "has no alias for 'SQL', 'S.Q.L.'"),
    ],
)
def test_a_file_that_is_no_lexicon_is_refused(tmp_path, name, content, reason):
    """With what is wrong in it."""
    with pytest.raises(ConfigurationError, match=r"^speech\.lexicon: ") as refusal:
        lexicon(tmp_path, content, name)
    assert reason in str(refusal.value)
    assert len(str(refusal.value)) < 500


def test_an_entry_inside_another_is_not_read(tmp_path):
    """PLS has none, and each level would cost all those below it once more."""
    nested = "<lexeme><grapheme>a</grapheme><alias>b</alias>"
    content = PLS.replace("</lexicon>", f"{nested * 10_000}{'</lexeme>' * 10_000}</lexicon>")
    assert lexicon(tmp_path, content, "a.pls").words["a"] == "b"


def test_a_missing_file_is_named(tmp_path):
    """It is a matter for a person."""
    with pytest.raises(ConfigurationError, match=r"none\.toml can't be read"):
        read_lexicon(tmp_path / "none.toml")
