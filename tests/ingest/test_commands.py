"""The commands as a shell sees them: help, exit codes, one-line errors, logs, metrics, order of stopping."""

import json
import os
import re
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from tests.ground.brokers import Broker
from tests.ground.processes import ROOT, Child, answers, free_port

COMMANDS = ("gateway", "writer", "migrate")
PROGRAM = "import sys, typer; from rankscope_ingest import commands; typer.run(getattr(commands, sys.argv.pop(1)))"
HEAVY = ("chdb", "clickhouse_connect", "numpy", "pandas", "pyarrow", "torch", "fastapi")


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    environ = {name: value for name, value in os.environ.items() if not name.startswith("RANKSCOPE_")}
    return subprocess.run(
        [sys.executable, "-c", PROGRAM, *arguments],
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
        cwd=ROOT,
        env={**environ, "COLUMNS": "200", "NO_COLOR": "1"},
    )


@pytest.mark.parametrize("command", COMMANDS)
def test_every_option_names_its_environment_variable(command: str) -> None:
    text = run(command, "--help").stdout

    options = set(re.findall(r"--([a-z-]+)", text)) - {"help", "no-migrate"}
    variables = re.findall(r"env var: (RANKSCOPE_[A-Z_]+)", text)

    assert options
    assert len(variables) == len(options)


@pytest.mark.parametrize(
    "arguments",
    [
        ("gateway", "--redis-url", "redis://:secret@127.0.0.1:1"),
        ("gateway", "--listen", "nowhere"),
        ("gateway", "--log-format", "xml"),
        ("writer", "--redis-url", "redis://:secret@127.0.0.1:1"),
        ("migrate", "--clickhouse-url", "http://u:secret@127.0.0.1:1/d"),
    ],
    ids=" ".join,
)
def test_a_failure_is_one_sentence_with_the_setting_and_exit_code_1(arguments: tuple[str, ...]) -> None:
    done = run(*arguments)

    assert done.returncode == 1
    assert re.fullmatch(r"rankscope: .*RANKSCOPE_[A-Z_]+.*\n", done.stderr), done.stderr
    assert "secret" not in done.stderr


def test_an_unknown_option_is_exit_code_2() -> None:
    assert run("writer", "--no-such-option").returncode == 2


def test_the_gateway_imports_nothing_that_only_the_store_needs() -> None:
    program = f"import sys, rankscope_ingest.gateway; print(*({set(HEAVY)} & set(sys.modules)))"

    loaded = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout.split()

    assert not loaded


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_gateway_ends_in_order_and_logs_json(number: signal.Signals, broker: Broker, tmp_path: Path) -> None:
    port, metrics_port = free_port(), free_port()
    options = [
        *("--listen", f"127.0.0.1:{port}", "--redis-url", broker.url, "--log-format", "json"),
        *("--metrics-listen", f"127.0.0.1:{metrics_port}"),
    ]
    child = Child([sys.executable, "-c", PROGRAM, "gateway", *options], name="gateway", folder=tmp_path)
    try:
        child.await_that(lambda: answers(port), what="listen")
        with urllib.request.urlopen(f"http://127.0.0.1:{metrics_port}/metrics") as page:  # our own port
            metrics = page.read().decode()
        child.signal(number)

        assert child.wait() == 0, child.output()
    finally:
        child.stop()

    lines = [json.loads(line) for line in child.output().splitlines()]
    assert {"event", "level", "logger", "timestamp"} <= set(lines[0])
    assert "# TYPE rankscope_ingest_batches_total counter" in metrics
    assert "# TYPE rankscope_ingest_rows_accepted_total counter" in metrics
