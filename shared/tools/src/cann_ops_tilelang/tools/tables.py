"""Tables of text for the terminal and for Markdown. A cell that begins with ``!`` misses its target."""

from __future__ import annotations

from rich.box import SIMPLE_HEAD
from rich.table import Table

Rows = list[list[str]]


def rich_table(title: str, rows: Rows) -> Table:
    """The first row holds the headings, the first column the names."""
    headings, *body = rows
    table = Table(title=title, title_justify="left", title_style="bold", box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for index, heading in enumerate(headings):
        # A word a line: columns are as narrow as their numbers allow.
        table.add_column(heading.replace(" ", "\n"), justify="right" if index else "left", no_wrap=True)
    for row in body:
        table.add_row(*map(rich_text, row))
    return table


def rich_text(cell: str) -> str:
    return f"[red]{cell[1:]}[/red]" if cell.startswith("!") else cell


def markdown_table(rows: Rows) -> str:
    headings, *body = rows
    lines = [
        headings,
        ["---", *["---:"] * (len(headings) - 1)],
        *([markdown_text(cell) for cell in row] for row in body),
    ]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def markdown_text(cell: str) -> str:
    return f"**{cell[1:]}** (missed)" if cell.startswith("!") else cell
