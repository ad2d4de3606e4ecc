"""Kept values on their whole way: a trainer, the gateway, the broker, the writer, the store, a download."""

from pathlib import Path

import httpx
import torch
from torch import Tensor

from tests.cli.programs import rankscope
from tests.ground.processes import Children, python, wait_until
from tests.ground.stacks import Stack
from tests.system.kept import contents
from tests.system.test_path import is_complete

RUN = "/runs/kept-values"


def test_values_of_every_type_come_back_bit_for_bit(stack: Stack, children: Children, tmp_path: Path) -> None:
    environ = {**stack.environ, "RANKSCOPE_RUN_ID": "kept-values", "RANKSCOPE_RANK": "0", "RANKSCOPE_WORLD_SIZE": "1"}
    trainer = children.start(python("tests.system.kept"), name="trainer", environ=environ)
    assert trainer.wait(60) == 0, trainer.output()
    wait_until(lambda: is_complete(stack, "kept-values"), what="all rows in the store")

    items = stack.get(f"{RUN}/captures")["items"]

    truth = contents()
    assert [(item["name"], item["step"]) for item in items] == [
        (f"every[{at}]", step) for step in (1, 2) for at in range(len(truth))
    ]
    assert all(item["is_whole"] for item in items)
    assert [item["digest"] for item in items[: len(truth)]] == [item["digest"] for item in items[len(truth) :]]
    for item, tensor in zip(items, truth, strict=False):
        assert (item["dtype"], item["shape"]) == (str(tensor.dtype).removeprefix("torch."), list(tensor.shape))
        assert downloaded(stack, item["digest"], item["name"]) == raw(tensor)
    file = tmp_path / "large.safetensors"
    written = rankscope("captures", "kept-values", items[-1]["digest"], "--out", str(file), home=stack.home)
    listed = rankscope("captures", "kept-values", "--name", "every*", "--step", "2", home=stack.home)
    wrong = rankscope("captures", "kept-values", "0" * 32, "--out", str(tmp_path / "none"), home=stack.home)
    assert (written.status, written.stdout.strip()) == (0, str(file))
    assert file.read_bytes()[8 + int.from_bytes(file.read_bytes()[:8], "little") :] == raw(truth[-1])
    assert {path.name for path in tmp_path.iterdir()} == {file.name, "trainer.log"}
    assert listed.stdout.count("float8_e4m3fn") == 1
    assert (wrong.status, "no capture" in wrong.stderr) == (3, True)
    chunks = stack.get(f"{RUN}/completeness")["sections"]
    rows = next(section for section in chunks if section["section"] == "captures")
    assert rows["stored"] == rows["emitted"] > len(items)


def downloaded(stack: Stack, digest: str, name: str) -> bytes:
    """The bytes of one content."""
    asked = {"format": "raw", "name": name}
    answer = httpx.get(f"{stack.query}/api/v1{RUN}/captures/{digest}", params=asked, timeout=30)
    assert answer.status_code == 200, answer.text
    return answer.content


def raw(tensor: Tensor) -> bytes:
    """The bytes of a tensor."""
    return tensor.contiguous().view(-1).view(torch.uint8).numpy().tobytes() if tensor.numel() else b""
