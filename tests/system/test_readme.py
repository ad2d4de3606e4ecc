"""What the README shows is what happens."""

import re
import shlex
import sys
from pathlib import Path

from tests.ground.processes import Children, python, wait_until
from tests.ground.stacks import Stack
from tests.house.tree import text_of
from tests.system.test_path import is_complete

README = text_of("README.md")
CODE = re.findall(r"```python\n(.*?)```", README, re.DOTALL)[0]
SHELL = re.findall(r"```console\n(.*?)```", README, re.DOTALL)[0]


def test_the_first_example_prints_what_the_readme_says(stack: Stack, children: Children, tmp_path: Path) -> None:
    program = tmp_path / "train.py"
    program.write_text(CODE, encoding="utf-8")
    environ = {**stack.environ, "RANKSCOPE_RUN_ID": "readme"}

    trainer = children.start([sys.executable, program], name="readme-trainer", environ=environ)
    assert trainer.wait(60) == 0, trainer.output()
    wait_until(lambda: is_complete(stack, "readme"), what="all rows in the store")

    for said in re.findall(r"^rankscope: run \S+?([ ,].*)$", SHELL, re.MULTILINE):
        assert f"run readme{without_what_varies(said)}" in without_what_varies(trainer.output())
    # A process that takes longer says once more, every few seconds, that it is alive: these are rows, too.
    shown, spooled = (int(re.findall(r"(\d+) rows spooled", text)[0]) for text in (SHELL, trainer.output()))
    assert shown <= spooled < 2 * shown
    command, answer = re.findall(r"^\$ rankscope (query .*)\n((?:[^$].*\n?)+)", SHELL, re.MULTILINE)[0]
    asked = children.start(
        python("rankscope", *shlex.split(command), "--run", "readme"), name="readme-query", environ=environ
    )
    assert asked.wait(60) == 0, asked.output()
    assert answer.strip() in asked.output()


def without_what_varies(text: str) -> str:
    return re.sub(r"\d+ rows spooled", "ROWS rows spooled", re.sub(r"127\.0\.0\.1:\d+", "127.0.0.1:PORT", text))
