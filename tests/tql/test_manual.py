"""The package's queries are queries, its modules are all named, and its limits are those of the code."""

import re
from pathlib import Path

import pytest

from rankscope import tql

MANUAL = Path(tql.__file__).with_name("README.md").read_text(encoding="utf-8")
EXAMPLES = [line for block in re.findall(r"```tql\n(.*?)```", MANUAL, re.DOTALL) for line in block.splitlines()]


@pytest.mark.parametrize("text", EXAMPLES)
def test_a_query_of_the_manual_passes_the_check(text: str) -> None:
    assert tql.check(tql.parse(text))


def test_the_limits_are_those_of_the_code() -> None:
    from rankscope.tql import patterns, words

    stated = (
        f"{words.MAX_BYTES // 1024} KiB of text, {words.MAX_NODES} nodes, {words.MAX_DEPTH} levels, "
        f"{words.MAX_ITEMS} items of a list, {words.MAX_STAGES} stages; patterns of {patterns.MOST_PARTS:,} letters"
    )

    assert stated in MANUAL


def test_every_module_has_its_place_among_the_passes() -> None:
    modules = {path.stem for path in Path(tql.__file__).parent.glob("*.py")} - {"__init__"}
    named = set(re.findall(r"`([a-z_*]+)`", MANUAL))

    unnamed = {name for name in modules - named if not name.startswith("evaluate_")}

    assert unnamed <= {"errors", "words"}
