import json
import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from utterd import settings_reference
from utterd.audio.formats import FORMATS, MAX_SAMPLE_RATE_HZ, legal_bitrates_kbps
from utterd.cli import app
from utterd.cli.exit_status import ExitStatus
from utterd.config import Settings
from utterd.errors import InvalidSsmlError, JobError, error_from
from utterd.settings_sources import CONFIG_VARIABLE, environment_name, setting_paths
from utterd.text.ssml import parse_ssml
from utterd_schemas.audio import AudioFormat
from utterd_schemas.digest import SoundIdentity
from utterd_schemas.errors import ErrorCode, ErrorInfo
from utterd_schemas.events import EventType
from utterd_schemas.job import FIELD_NAMES

ROOT = Path(__file__).parents[3]
DOCUMENTS = (
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")),
    *sorted((ROOT / "docs").glob("*.md")),
)


def document(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def section(text: str, heading: str) -> str:
    """The text under a heading, up to the next one of any level."""
    _, _, rest = text.partition(f"\n{heading}\n")
    return re.split(r"^#", rest, maxsplit=1, flags=re.MULTILINE)[0]


def rows(markdown: str) -> Iterator[list[str]]:
    """The cells of every table row but heads and rules, without back quotes."""
    lines = markdown.splitlines()
    for line, following in zip(lines, [*lines[1:], ""], strict=True):
        if line.startswith("| ") and not following.startswith("| --"):
            cells = [cell.strip().strip("`") for cell in line.strip("|").split(" | ")]
            if set(cells[0]) != {"-"}:
                yield cells


def blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL)


def test_the_settings_tables_are_those_of_the_code() -> None:
    """docs/settings.md is what the generator makes of it."""
    text = document("docs/settings.md")

    assert text == settings_reference.update(text), (
        "run: python -m utterd.settings_reference docs/settings.md"
    )


def test_every_setting_has_one_row() -> None:
    """The reference lists each setting once, with a meaning."""
    table = {cells[0]: cells[-1] for cells in rows(settings_reference.render())}

    assert sorted(table) == sorted(setting_paths())
    assert all(table.values())


def test_secrets_without_a_default_show_none() -> None:
    """A secret's row tells that it is a secret and that it is unset."""
    table = {cells[0]: cells[1:3] for cells in rows(settings_reference.render())}

    assert table["store.secret_access_key"] == ["secret", "unset"]


def test_a_document_without_markers_is_refused() -> None:
    """The generator writes into a document only between its markers."""
    with pytest.raises(ValueError, match="must hold the lines"):
        settings_reference.update("# Settings\n")


def test_the_generator_writes_the_file(tmp_path: Path) -> None:
    """Run on a document with empty tables, it fills them and keeps the rest."""
    path = tmp_path / "settings.md"
    path.write_text(f"before\n{settings_reference.BEGIN}\n{settings_reference.END}\nafter\n")

    settings_reference.main(path)

    text = path.read_text(encoding="utf-8")
    assert settings_reference.render() in text
    assert text.startswith("before\n")
    assert text.endswith("\nafter\n")


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_variables_are_settings(path: Path) -> None:
    """Every environment variable that a document names is one."""
    known = {CONFIG_VARIABLE, *map(environment_name, setting_paths())}
    named = set(re.findall(r"\bUTTERD_[A-Z0-9_]+[A-Z0-9]", path.read_text(encoding="utf-8")))

    assert named <= known


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_links_lead_somewhere(path: Path) -> None:
    """Every relative link of a document leads to a file, and to a heading of it if it names one."""
    text = path.read_text(encoding="utf-8")
    for target in re.findall(r"\]\((?!https?:)([^)\s]+)\)", text):
        name, _, anchor = target.partition("#")
        linked = path.parent / name if name else path
        assert linked.exists(), target
        if anchor:
            headings = re.findall(r"^#+ (.+)$", linked.read_text(encoding="utf-8"), re.MULTILINE)
            assert anchor in [heading.lower().replace(" ", "-") for heading in headings], target


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_code_blocks_are_well_formed(path: Path) -> None:
    """Python compiles, and TOML is a legal configuration."""
    text = path.read_text(encoding="utf-8")
    for code in blocks(text, "python"):
        compile(code, path.name, "exec")
    for toml in blocks(text, "toml"):
        Settings.model_validate(tomllib.loads(toml))


def test_the_readme_has_both_clients() -> None:
    """A publisher and a subscriber in Python, of about ten lines each."""
    code = blocks(document("README.md"), "python")

    assert len(code) == 2
    assert all(len(list(filter(None, block.splitlines()))) <= 11 for block in code)


def test_the_readme_has_a_legal_job_in_curl() -> None:
    """The body that curl sends is JSON, and so is the job in it."""
    (body,) = re.findall(r"-d '(\{.*?^\})'", document("README.md"), re.MULTILINE | re.DOTALL)

    assert set(json.loads(json.loads(body)["payload"])) <= FIELD_NAMES


def test_the_readme_lists_all_fields() -> None:
    """The table of a job's fields is complete."""
    table = section(document("README.md"), "### Fields of a job")

    assert {cells[0] for cells in rows(table)} == FIELD_NAMES


def test_the_readme_lists_all_error_codes() -> None:
    """The table has each code once, and says truly whether it is retryable."""
    table = list(rows(section(document("README.md"), "## Error codes")))

    assert [cells[0] for cells in table] == [str(code) for code in ErrorCode]
    assert {cells[0]: cells[1] for cells in table} == {
        str(code): "yes" if kind_of(code).retryable else "no" for code in ErrorCode
    }


def kind_of(code: ErrorCode) -> type[JobError]:
    return type(error_from(ErrorInfo(code=code, message="", retryable=False)))


def test_the_readme_lists_all_formats() -> None:
    """The table of formats agrees with the one in the code."""
    table = [
        cells for cells in rows(section(document("README.md"), "## Formats")) if len(cells) == 4
    ]

    assert {cells[0]: tuple(cells[1:]) for cells in table} == {
        str(name): (
            f".{traits.extension}",
            traits.content_type,
            ", ".join(map(str, traits.sample_rates_hz)) if traits.sample_rates_hz else "any",
        )
        for name, traits in FORMATS.items()
    }


@pytest.mark.parametrize("name", [AudioFormat.MP3, AudioFormat.OPUS])
def test_the_readme_lists_all_bitrates(name: AudioFormat) -> None:
    """Each list of legal bitrates has a row of its own."""
    listed = {
        cells[2]
        for cells in rows(section(document("README.md"), "## Formats"))
        if len(cells) == 3 and cells[0] == name
    }

    assert listed == {
        ", ".join(map(str, legal_bitrates_kbps(name, rate_hz)))
        for rate_hz in FORMATS[name].sample_rates_hz or (MAX_SAMPLE_RATE_HZ,)
    }


def test_the_readme_lists_all_events() -> None:
    """The table of events is complete, and says truly which are terminal."""
    table = section(document("README.md"), "## Subscribe to events")

    assert {cells[0]: cells[1] for cells in rows(table)} == {
        kind.routing_key: "yes" if kind.is_terminal else "no" for kind in EventType
    }


def test_the_readme_lists_all_commands() -> None:
    """The table of commands is complete."""
    table = rows(section(document("README.md"), "## Commands"))
    commands = {command.name for command in app.registered_commands} | {
        f"{group.name} {command.name or command.callback.__name__}"
        for group in app.registered_groups
        if group.typer_instance
        for command in group.typer_instance.registered_commands
        if command.callback
    }

    assert {cells[0] for cells in table if cells[0].startswith("utterd ")} == {
        f"utterd {command}" for command in commands
    }


def test_the_readme_lists_all_exit_statuses() -> None:
    """Every exit status of ours is in the table."""
    listed = {cells[0] for cells in rows(section(document("README.md"), "## Commands"))}

    assert {str(int(status)) for status in ExitStatus} <= listed


def test_the_contract_lists_what_the_key_holds() -> None:
    """The table of the key's members is complete."""
    table: Mapping[str, str] = {
        cells[0]: cells[1] for cells in rows(section(document("docs/contract.md"), "## The key"))
    }
    members = {name for cell in table for name in re.findall(r"[a-z_]+", cell)}

    assert members == set(SoundIdentity.__dataclass_fields__)


def test_the_contract_lists_the_ssml_elements() -> None:
    """The table of SSML elements has those that are spoken, and no others."""
    table = rows(section(document("docs/contract.md"), "### SSML"))

    with pytest.raises(InvalidSsmlError) as refusal:
        parse_ssml("<speak><audio/></speak>")

    listed = {name for cells in table for name in re.findall(r"[a-z-]+", cells[0])}
    elements = refusal.value.detail["elements"]
    assert isinstance(elements, list)
    assert listed == set(elements)
