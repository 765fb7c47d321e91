"""What a measurement found, and the document that all of them make."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from textwrap import fill

_WHOLE_LINES = re.MULTILINE | re.DOTALL

INTRODUCTION = """\
# Performance

`make bench` measures this and writes this file. Where there is something to compare with, a figure
stands beside a baseline of the same run, taken in turns with it, so that the ratio of the two says
something on another machine too. A target is what the design asked for.
"""

REPEAT = """\
`make bench` takes about {duration_s:.0f} seconds, starts its own RabbitMQ and S3 server on the same
cores as everything else, and leaves nothing but this file behind. Close what else uses the
processor: processor times bear a busy machine well, ratios less, latencies and rates not at all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One figure.

    Attributes:
        name: what was measured.
        figure: with its unit.
        baseline: what it is compared with, with its unit; empty where there is none.
        ratio: figure to baseline; None where there is no baseline.
        target: what was asked for; empty where nothing was.
        is_met: whether the figure reaches the target; None where there is none.
    """

    name: str
    figure: str
    baseline: str = ""
    ratio: float | None = None
    target: str = ""
    is_met: bool | None = None

    def cells(self) -> tuple[str, ...]:
        ratio = "" if self.ratio is None else f"{self.ratio:.2f}"
        verdict = {None: "", True: "yes", False: "**no**"}[self.is_met]
        return self.name, self.target, self.figure, self.baseline, ratio, verdict


HEADINGS = ("measured", "target", "figure", "baseline", "ratio", "met")


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """One measurement.

    Attributes:
        title: its heading.
        method: how it was made, as Markdown.
        rows: what it found.
        headings: of the table, where it is not the usual one.
        table: rows of that table.
    """

    title: str
    method: str
    rows: tuple[Row, ...] = ()
    headings: tuple[str, ...] = HEADINGS
    table: tuple[tuple[str, ...], ...] = ()

    def markdown(self) -> str:
        lines = self.table or tuple(row.cells() for row in self.rows)
        return "\n".join(
            [f"## {self.title}", "", _wrapped(self.method), "", *_table(self.headings, lines), ""]
        )


def document(
    machine: Iterable[str], sections: Iterable[Section], *, kept: str, duration_s: float
) -> str:
    """The whole of `docs/performance.md`.

    Args:
        machine: facts about where it ran, one a line.
        sections: in the order of reading.
        kept: a section that another command has made, as Markdown.
        duration_s: of the whole run.
    """
    return (
        "\n".join(
            [
                INTRODUCTION,
                *(f"- {fact}" for fact in machine),
                "",
                *(section.markdown() for section in sections),
                *([kept] if kept else []),
                "## Repeat it",
                "",
                _wrapped(REPEAT.format(duration_s=duration_s)),
            ]
        ).rstrip()
        + "\n"
    )


def section_in(document: str, title: str) -> str:
    """A section of a document, with its heading; empty where there is none."""
    found = re.search(rf"^## {re.escape(title)}\n.*?(?=^## |\Z)", document, _WHOLE_LINES)
    return found.group() if found else ""


def replace_section(document: str, section: Section) -> str:
    """A document with this section in place of the one of its title, or before the last one."""
    old, new = section_in(document, section.title), section.markdown() + "\n"
    if old:
        return document.replace(old, new)
    head, last, tail = document.rpartition("\n## ")
    return f"{head}\n{new.rstrip()}\n{last}{tail}"


def _wrapped(text: str) -> str:
    paragraphs = text.split("\n\n")
    return "\n\n".join(
        fill(paragraph, width=100, break_long_words=False, break_on_hyphens=False)
        for paragraph in paragraphs
    )


def _table(headings: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> list[str]:
    return [
        f"| {' | '.join(headings)} |",
        f"|{'---|' * len(headings)}",
        *(f"| {' | '.join(row)} |" for row in rows),
    ]
