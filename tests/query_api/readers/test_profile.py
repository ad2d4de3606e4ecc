"""`rankscope profile` and `rankscope hits` over the real service."""

import csv
import io
import json
from pathlib import Path

import pytest

from rankscope.cli._profile import bars_of, by_layer
from tests.cli.programs import rankscope
from tests.query_api import story


def test_a_profile_is_a_line_a_layer_with_a_bar(served: str, tmp_path: Path) -> None:
    answer = rankscope("profile", story.RUN, "--step", "10", "--url", served, home=tmp_path)

    assert answer.stdout.splitlines()[0] == "l2 of grad at step 10"
    assert answer.stdout.splitlines()[1].split() == ["layer", "type", "value", "low", "high", "bar"]
    assert answer.stdout.splitlines()[2].split()[0] == "layers.2.mlp"


def test_a_profile_step_by_step_is_csv_and_json_too(served: str, tmp_path: Path) -> None:
    asked = ("profile", story.RUN, "--by-step", "--from", "0", "--to", "30", "--rank", "1", "--url", served)
    as_csv = rankscope(*asked, "--csv", home=tmp_path)
    as_json = rankscope(*asked, "--json", home=tmp_path)

    rows = list(csv.DictReader(io.StringIO(as_csv.stdout)))
    items = json.loads(as_json.stdout)["items"]
    assert [int(row["step"]) for row in rows] == [item["step"] for item in items]
    assert {row["ranks"] for row in rows} == {"1"}
    assert len(rows) > 1


def test_hits_of_a_run_without_breakpoints_are_none(served: str, tmp_path: Path) -> None:
    answer = rankscope("hits", story.RUN, "--url", served, home=tmp_path)

    assert (answer.status, answer.stdout.strip()) == (0, "no rows")


@pytest.mark.parametrize("command", ["profile", "hits"])
def test_a_run_is_asked_for_by_its_name_whatever_characters_that_has(served: str, tmp_path: Path, command: str) -> None:
    answer = rankscope(command, "night run #2?", "--url", served, home=tmp_path)

    assert "no run 'night run #2?' in project" in answer.stderr


def test_the_bars_of_a_step_stand_below_each_other_though_a_layer_is_missing_in_it() -> None:
    found = [(0, "a", 1.0), (1, "a", 4.0), (1, "b", 2.0), (2, "a", 4.0), (2, "b", 1.0)]
    items = [
        {"step": step, "layer": of, "layer_type": "mlp", "value": value, "is_whole": True} for step, of, value in found
    ]

    lines = by_layer(items)

    assert [(line["layer"], line["value"], line["bar"]) for line in lines] == [("a", "4", "▁██"), ("b", "1", "·▅▁")]


@pytest.mark.parametrize(
    ("values", "bars"),
    [([1.0, 2.0, 4.0], "▁▅█"), ([0, 5.0], " █"), (["NaN", 1.0], "!█"), ([-8, 8], "██"), ([None, 0.0], "! ")],
)
def test_a_bar_shows_the_logarithm_between_the_least_and_the_greatest(
    values: list[float | str | None], bars: str
) -> None:
    assert bars_of(values) == list(bars)
