"""The generated code loads on the oldest runtimes we state and on the newest we allow."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.house.tree import ROOT

OLDEST = ["grpcio==1.71.2", "protobuf==5.29.0"]
NEWEST = ["grpcio", "protobuf<8"]
PROGRAM = """
from rankscope_proto.v1 import batch_pb2, ingest_pb2, ingest_pb2_grpc
assert batch_pb2.Batch.FromString(batch_pb2.Batch().SerializeToString()) == batch_pb2.Batch()
"""


@pytest.mark.slow
@pytest.mark.parametrize("requirements", [OLDEST, NEWEST], ids=["oldest", "newest"])
def test_the_generated_code_loads_without_a_warning(requirements: list[str], tmp_path: Path) -> None:
    subprocess.run(
        [sys.executable, "-m", "pip", "install", "--quiet", "--target", tmp_path, *requirements],
        check=True,
        capture_output=True,
    )

    # -S: without this environment's own packages.
    done = subprocess.run(
        [sys.executable, "-S", "-W", "error", "-c", PROGRAM],
        check=False,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT / 'proto'}"},
    )

    assert done.returncode == 0, done.stderr
