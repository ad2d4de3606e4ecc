"""The same request gets the same answer, whoever dies in between; another one under its key gets none."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rankscope.front.errors import ConflictError, FrontError
from tests.agent.front.clients import CHILD, Fronted, event, whole


@pytest.fixture
def front(tmp_path: Path) -> Iterator[Fronted]:
    running = Fronted(tmp_path / "spool")
    yield running
    running.book.close()


def test_a_request_that_comes_again_gets_its_first_answer_and_changes_nothing(front: Fronted) -> None:
    events = whole(colour="red")
    first = front.send(*events, key="k")
    rows = front.written()

    again = front.send(*events, key="k")

    assert again == first
    assert first["inserted"] == 2
    assert front.written(after_s=60) == rows
    assert len(rows) == 1


def test_the_first_answer_is_given_after_a_restart_too(front: Fronted) -> None:
    events = whole()
    first = front.send(*events, key="k")
    front.close()

    front.open()

    assert front.send(*events, key="k") == first
    assert len(front.written()) == 1


def test_the_order_of_names_in_a_body_makes_it_no_other(front: Fronted) -> None:
    events = whole()
    first = front.send(*events, key="k")

    again = front.send(*[dict(reversed(one.items())) for one in events], key="k")

    assert again == first


def test_another_body_under_the_same_key_is_a_conflict_and_nothing_of_it_is_kept(front: Fronted) -> None:
    front.send(*whole(), key="k")

    with pytest.raises(ConflictError, match="'k' was used for another body"):
        front.send(*whole(CHILD), key="k")

    assert len(front.written()) == 1


def test_a_key_belongs_to_its_run(front: Fronted) -> None:
    first = front.send(*whole(), key="k", run="a")
    other = front.send(*whole(CHILD), key="k", run="b")

    assert (first["inserted"], other["inserted"]) == (2, 2)


def test_a_request_that_was_refused_may_be_mended_under_its_key(front: Fronted) -> None:
    with pytest.raises(FrontError):
        front.send(event(1, "started", kind="llm"), key="k")

    assert front.send(*whole(), key="k")["inserted"] == 2


def test_nothing_of_a_body_or_a_key_is_kept_for_the_comparison(front: Fronted) -> None:
    """Digests of both are."""
    secret = "sk-" + "a" * 40
    front.send(*whole(attributes={"api_key": secret}, more={f"field {secret}": 1}), key=secret)

    assert secret.encode() not in stored(front)


def stored(front: Fronted) -> bytes:
    """All that lies on the disk."""
    return b"".join(path.read_bytes() for path in front.root.rglob("*") if path.is_file())


SECRETS: dict[str, dict[str, Any]] = {
    "a key that names one": {"attributes": {"api_key": "plain-looking"}},
    "nested": {"attributes": {"headers": {"Authorization": "plain-looking"}}},
    "a value": {"attributes": {"note": "Bearer plain-looking-token-0123456789"}},
    "the name": {"name": "call with sk-plainlooking0123456789abcdefghij"},
    "an id": {"rollout_id": "sk-plainlooking0123456789abcdefghij"},
    "a preview": {"input_preview": '{"password": "plain-looking"}', "content_policy": "preview"},
    "an error": {"error_preview": "https://user:plain-looking@host/", "content_policy": "preview"},
    "a metric": {"metrics": {"token": "plain-looking"}},
    "a link": {"links": [{"trace_id": "x", "secret": "plain-looking"}]},
}


@pytest.mark.parametrize("where", SECRETS)
def test_a_secret_is_on_no_disk_not_even_in_a_half(where: str, front: Fronted) -> None:
    front.send(event(1, "started", **SECRETS[where]))
    half = stored(front)
    front.send(event(2, "finished", **SECRETS[where], ended_at="2026-11-29T10:00:01Z"))
    (row,) = front.written()

    for kept in (half, stored(front), json.dumps(row, default=str).encode()):
        assert b"plain-looking" not in kept
        assert b"plainlooking" not in kept
    assert row["redaction_state"] == 2


def test_numbers_and_ordinary_texts_are_left_alone(front: Fronted) -> None:
    given = '{"prompt": "what is a token?",  "n": 1}'
    front.send(
        *whole(input_preview=given, content_policy="preview", metrics={"loss_per_token": 0.5, "max_new_token": 7})
    )

    (row,) = front.written()

    assert row["inputs"] == given
    assert row["metrics"] == {"loss_per_token": 0.5, "max_new_token": 7.0}
    assert (row["capture"], row["redaction_state"]) == (2, 1)
