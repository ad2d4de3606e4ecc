"""What is rendered from the one declaration is committed, and is what rendering it again gives."""

import os
import subprocess
import sys
from pathlib import Path

from tests.house.tree import ROOT

V1 = Path("rankscope_proto/v1")
MESSAGES = ["--python_out={out}", "--mypy_out={out}"]
SERVICES = ["--grpc_python_out={out}", "--mypy_grpc_out={out}"]


def test_the_rendered_files_are_fresh() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "rankscope_proto.render", "--check"],
        check=False,
        capture_output=True,
        text=True,
        cwd=ROOT,
    )

    assert done.returncode == 0, done.stdout + done.stderr


def test_the_generated_code_is_fresh(tmp_path: Path) -> None:
    compile_into(tmp_path, outputs=MESSAGES, protos=["batch.proto", "ingest.proto"])
    compile_into(tmp_path, outputs=SERVICES, protos=["ingest.proto"])

    fresh = {path.name: path.read_text() for path in (tmp_path / V1).iterdir()}
    committed = {path.name: path.read_text() for path in (ROOT / "proto" / V1).glob("*_pb2*")}

    assert fresh == committed


def compile_into(folder: Path, *, outputs: list[str], protos: list[str]) -> None:
    """Runs protoc as `make proto` does, writing below `folder`."""
    plugins = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    subprocess.run(
        [sys.executable, "-m", "grpc_tools.protoc", "-I", "proto"]
        + [output.format(out=folder) for output in outputs]
        + [f"proto/{V1}/{proto}" for proto in protos],
        check=True,
        capture_output=True,
        cwd=ROOT,
        env={**os.environ, "PATH": plugins},
    )
