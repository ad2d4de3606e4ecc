"""Every example of the language is answered, with the answer that a small training is known to have."""

from collections.abc import Iterator

import pytest

from tests.ground.stores import FrontProcess, Store
from tests.proto.batches import insert, migrate
from tests.query_api.tql import training
from tests.query_api.tql.conftest import Asked
from tests.query_api.tql.examples import EXAMPLES, MORE


@pytest.fixture(scope="module")
def of_training(front_process: FrontProcess) -> Iterator[Asked]:
    """The training in a database of its own."""
    store = Store(front_process.url)
    migrate(store.client)
    insert(store.client, *training.batches())
    yield Asked(store.client)
    store.drop()


@pytest.mark.parametrize("run", [None, training.RUN])
@pytest.mark.parametrize("text", [*EXAMPLES, *MORE])
def test_an_example_has_the_answer_that_is_known(of_training: Asked, text: str, run: str | None) -> None:
    looked_at, known = {**EXAMPLES, **MORE}[text]

    answer = of_training.page(text, run=run)

    assert [looked_at(item) for item in answer.items] == known
    assert answer.total == len(known) > 0


@pytest.mark.parametrize("text", [*EXAMPLES, *MORE])
def test_pages_of_an_example_are_its_answer(of_training: Asked, text: str) -> None:
    whole = of_training.page(text, run=training.RUN).rows

    assert of_training.pages(text, limit=1) == whole


@pytest.mark.parametrize("text", [*EXAMPLES, *MORE])
def test_the_same_training_of_another_project_changes_nothing(of_training: Asked, text: str) -> None:
    ours, theirs = (of_training.page(text, project=project) for project in ("default", "other"))

    assert theirs.items == ours.items
    nothing = of_training.page(text, project="third").items
    assert not any(value for item in nothing for value in item.values())  # one group of no rows
