from pathlib import Path

import pytest

from utterd.engines.cosyvoice.conversion.hyperpyyaml import read_hyperpyyaml
from utterd.errors import ConfigurationError


def write(directory: Path, text: str) -> Path:
    path = directory / "cosyvoice.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def test_tagged_nodes_are_plain_data(tmp_path: Path):
    """Mappings and lists under tags are read as they stand, and references are resolved."""
    path = write(
        tmp_path,
        "__seed: !apply:random.seed [1986]\n"
        "rate: 22050\n"
        "model: !new:a.B\n    rate: !ref <rate>\n"
        "    inner: !name:c.d\n        size: !ref <model[x]>\n"
        "    x: 3\n",
    )

    tree = read_hyperpyyaml(path)

    assert tree["model"] == {"rate": 22050, "inner": {"size": 3}, "x": 3}
    assert tree["__seed"] == [1986]


def test_nothing_is_called(tmp_path: Path):
    """A tag that asks for a call makes none."""
    witness = tmp_path / "witness"
    path = write(
        tmp_path,
        f"a: !apply:os.system ['touch {witness}']\n"
        f"b: !!python/object/apply:os.system ['touch {witness}']\n",
    )

    with pytest.raises(ConfigurationError, match="is not YAML"):
        read_hyperpyyaml(path)

    assert not witness.exists()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: !ref <b>", "<b> is not defined"),
        ("a: !ref <a>", "<a> refers to itself"),
        ("a: [1", "is not YAML"),
        ("- 1", "holds no mapping"),
        ("", "holds no mapping"),
        ("a: 2001-99-99", "is not YAML"),
        ("a: 0b_", "is not YAML"),
        ("a: !!int", "is not YAML"),
        ("a: !!bool x", "is not YAML"),
        ("a: " + "[" * 2000 + "]" * 2000, "is not YAML"),
        ("a: &a [*a]", "inside of its own anchor"),
        ("a: {b: 1, b: 2}", "b stands there twice"),
        ('a: !ref "<\\e31m>"', r"<'\\x1b31m'> is not defined"),
        ("x: " + "y" * 300_000, "is larger than"),
    ],
)
def test_what_is_wrong_is_told(tmp_path: Path, text: str, message: str):
    """A file that can't be read is refused with what is wrong."""
    with pytest.raises(ConfigurationError, match=message):
        read_hyperpyyaml(write(tmp_path, text))


def test_a_missing_file_is_named(tmp_path: Path):
    """The error of a missing file names it."""
    with pytest.raises(ConfigurationError, match=r"cosyvoice\.yaml is missing"):
        read_hyperpyyaml(tmp_path / "cosyvoice.yaml")


def test_aliases_and_references_are_not_multiplied(tmp_path: Path):
    """A short file that stands for millions of values is refused before they are made."""
    aliases = "a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n" + "".join(
        f"a{n}: &a{n} [{','.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 10)
    )
    references = "b0: [1]\n" + "".join(
        f"b{n}: [!ref <b{n - 1}>, !ref <b{n - 1}>]\n" for n in range(1, 30)
    )

    for text in (aliases, references):
        with pytest.raises(ConfigurationError, match="more than 50000 values"):
            read_hyperpyyaml(write(tmp_path, text))


def test_the_message_has_one_line(tmp_path: Path):
    """What the parser tells in several lines is told in one."""
    with pytest.raises(ConfigurationError) as refused:
        read_hyperpyyaml(write(tmp_path, "a: [1\nb: }"))

    assert "\n" not in str(refused.value)
