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
PROGRAM = (sys.executable, "-m", "rankscope")
HEAVY = ("chdb", "clickhouse_connect", "numpy", "pandas", "pyarrow", "torch", "fastapi")


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    environ = {name: value for name, value in os.environ.items() if not name.startswith("RANKSCOPE_")}
    return subprocess.run(
        [*PROGRAM, *arguments],
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
        cwd=ROOT,
        env={**environ, "COLUMNS": "200", "NO_COLOR": "1"},
    )


@pytest.mark.parametrize("command", COMMANDS)
def test_every_option_names_its_environment_variable(command: str) -> None:
    text = " ".join(run(command, "--help").stdout.split())

    options = set(re.findall(r"--([a-z-]+)", text)) - {"help", "no-migrate"}
    variables = re.findall(r"env var: (RANKSCOPE_[A-Z_]+)", text)

    assert options
    assert len(variables) == len(options)


FAULTS: list[tuple[str, ...]] = [
    ("gateway", "--redis-url", "redis://:secret@127.0.0.1:1"),
    ("writer", "--redis-url", "redis://:secret@127.0.0.1:1"),
    ("migrate", "--clickhouse-url", "http://u:secret@127.0.0.1:1/d"),
    ("migrate", "--clickhouse-url", "chdb:///proc/nothing/here"),
]
WRONG: list[tuple[str, ...]] = [
    ("gateway", "--listen", "nowhere"),
    ("gateway", "--listen", "0.0.0.0:8471"),
    ("gateway", "--keys", "/nowhere/keys.json"),
    ("gateway", "--tls-key", "/nowhere/server.key"),
    ("gateway", "--tls-cert", "/etc/passwd"),
    ("gateway", "--log-format", "xml"),
    ("gateway", "--redis-url", "redis://:secret@127.0.0.1:port"),
    ("writer", "--redis-url", "redis://:secret@[::1"),
    ("writer", "--clickhouse-url", "http://u:secret@[::1/d"),
    ("migrate", "--clickhouse-url", "http://u:secret@127.0.0.1:abc/d"),
    ("migrate", "--clickhouse-url", "ftp://u:secret@h/d"),
]


@pytest.mark.parametrize("arguments", FAULTS + WRONG, ids=" ".join)
def test_a_failure_is_one_sentence_with_the_setting_and_a_status_that_says_whose_fault(
    arguments: tuple[str, ...],
) -> None:
    done = run(*arguments)

    assert done.returncode == (1 if arguments in FAULTS else 2)
    assert re.fullmatch(r"error: .*RANKSCOPE_[A-Z_]+.*\n", done.stderr), done.stderr
    assert "secret" not in done.stderr


@pytest.mark.parametrize("arguments", [FAULTS[0], FAULTS[1], FAULTS[2], WRONG[0]], ids=" ".join)
def test_a_failure_is_a_json_document_where_json_is_asked_for(arguments: tuple[str, ...]) -> None:
    done = run(*arguments, "--json")

    error = json.loads(done.stderr)
    assert set(error) == {"code", "message", "hint", "position", "expected"}
    assert error["code"] in {"broker_unavailable", "store_unavailable", "config"}
    assert done.stdout == ""


def test_migrating_says_in_json_what_was_applied(tmp_path: Path) -> None:
    url = f"chdb://{tmp_path / 'store'}"

    first, second = (run("migrate", "--clickhouse-url", url, "--json") for _ in range(2))

    assert json.loads(first.stdout)["applied"], first.stderr
    assert json.loads(second.stdout) == {"applied": []}


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
    child = Child([*PROGRAM, "gateway", *options], name="gateway", folder=tmp_path)
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
