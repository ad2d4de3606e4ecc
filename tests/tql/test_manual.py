"""The manual's queries are queries, and what it calls unsupported is refused as that."""

import re
from pathlib import Path

import pytest

from rankscope import tql

MANUAL = Path(tql.__file__).with_name("README.md").read_text(encoding="utf-8")
EXAMPLES = [line for block in re.findall(r"```tql\n(.*?)```", MANUAL, re.DOTALL) for line in block.splitlines()]


@pytest.mark.parametrize("text", EXAMPLES)
def test_a_query_of_the_manual_passes_the_check(text: str) -> None:
    assert tql.check(tql.parse(text))


def test_the_limits_of_the_manual_are_those_of_the_parser() -> None:
    from rankscope.tql import words

    stated = (
        f"{words.MAX_BYTES // 1024} KiB of text, {words.MAX_NODES} nodes, {words.MAX_DEPTH} levels, "
        f"{words.MAX_ITEMS} items of a list."
    )

    assert stated in MANUAL
