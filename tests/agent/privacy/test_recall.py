"""How many planted secrets are found, and how many ordinary lines are left alone."""

import asyncio
import email
import http
import json
import logging
import random
import unittest
import urllib
from collections import Counter
from pathlib import Path

import pytest

from rankscope.privacy import Redactor
from tests.agent.privacy.ordinary import LINES, ordinary
from tests.agent.privacy.planted import SEED, Planted, planted

SEEDS = range(SEED, SEED + 5)
LEAST_RECALL = 0.98
MOST_FALSE = 0.001
HALF = 2
PACKAGES = (asyncio, email, http, json, logging, urllib, unittest)
"""Of the standard library, those that know passwords and cookies among them."""


@pytest.fixture(scope="module")
def redactor() -> Redactor:
    return Redactor()


def leaks(found: Planted, kept: str) -> bool:
    """Whether the secret, or the second half of it, is left."""
    return found.secret in kept or found.secret[len(found.secret) // HALF :] in kept


def test_there_are_enough_secrets_of_enough_kinds() -> None:
    kinds = Counter(secret.kind for secret in planted())

    assert kinds.total() >= 200
    assert len(kinds) >= 15


@pytest.mark.parametrize("seed", SEEDS)
def test_nearly_every_planted_secret_is_found(redactor: Redactor, seed: int) -> None:
    secrets = list(planted(seed))

    missed = [secret for secret in secrets if leaks(secret, redactor.text(secret.text))]

    assert len(missed) <= (1 - LEAST_RECALL) * len(secrets), missed


def test_nearly_every_planted_secret_is_found_in_a_preview(redactor: Redactor) -> None:
    secrets = list(planted())

    missed = [
        secret
        for secret in secrets
        if leaks(secret, redactor.preview({"messages": [{"role": "user", "content": secret.text}]}).text)
    ]

    assert len(missed) <= (1 - LEAST_RECALL) * len(secrets), missed


def test_a_preview_says_that_it_was_redacted_where_a_secret_was_planted(redactor: Redactor) -> None:
    for secret in planted():
        preview = redactor.preview([1, secret.text, {"n": secret.text}])
        assert preview.is_redacted == (redactor.text(secret.text) is not secret.text), secret


def test_what_was_redacted_once_is_the_same_object_the_second_time(redactor: Redactor) -> None:
    for secret in planted():
        kept = redactor.text(secret.text)
        assert redactor.text(kept) is kept, kept


def test_ordinary_lines_are_left_alone(redactor: Redactor) -> None:
    changed = [line for line in ordinary() if redactor.text(line) is not line]

    assert len(changed) <= MOST_FALSE * LINES, changed[:20]


def test_source_code_is_left_alone(redactor: Redactor) -> None:
    files = [file for package in PACKAGES for file in sorted(Path(str(package.__file__)).parent.glob("*.py"))]
    lines = [line for file in files for line in file.read_text(encoding="utf-8").splitlines()]

    changed = [line for line in lines if redactor.text(line) is not line]

    assert len(changed) <= MOST_FALSE * len(lines), changed


def test_secrets_are_found_among_ordinary_lines(redactor: Redactor) -> None:
    drawn = random.Random(SEED)
    lines = list(ordinary(2_000))
    for secret in planted():
        around = "\n".join((*drawn.sample(lines, 3), secret.text, *drawn.sample(lines, 3)))
        assert not leaks(secret, redactor.text(around)), secret
