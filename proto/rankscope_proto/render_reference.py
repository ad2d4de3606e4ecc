"""Renders the declaration as the reference page for people who read the tables."""

from rankscope_proto.columns import SECTIONS, header_fields
from rankscope_proto.declaration import Field, Section
from rankscope_proto.render_proto import comment, scalar


def _row(field: Field) -> str:
    return f"| `{field.name}` | {field.number} | {scalar(field)} | {field.table or '-'} | {comment(field)} |"


def _fields(title: str, meaning: str, *, fields: tuple[Field, ...]) -> list[str]:
    head = ["| field | number | wire | table | meaning |", "| --- | --- | --- | --- | --- |"]
    return [f"## {title}", "", meaning, "", *head, *[_row(field) for field in fields], ""]


def _section(section: Section) -> list[str]:
    meaning = f"{section.meaning} Table `{section.table}`, sorted by project, run, {', '.join(section.order_by)}."
    lines = _fields(section.name, meaning, fields=section.fields)
    if section.maps:
        lines += [f"`{column.name}` ({column.table}): {column.meaning}" for column in section.maps] + [""]
    if section.indexes:
        lines += [f"Index `{index.name}` on `{index.expression}`: {index.why}" for index in section.indexes] + [""]
    return lines


def reference() -> str:
    """Text of `proto/reference.md`."""
    lines = [
        "# The wire and its tables",
        "",
        "Rendered from `rankscope_proto/columns.py` by `make proto`; change it there.",
        "",
        *_fields(
            "header",
            "Who sealed the batch, when, and what had been emitted by then.",
            fields=header_fields(),
        ),
    ]
    for section in SECTIONS:
        lines += _section(section)
    return "\n".join(lines)
