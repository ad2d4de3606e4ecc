"""The modes of delivery: what `flush` and `finish` wait for, what they raise, and what stays where."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import pytest

from rankscope import Run
from rankscope._tracing_options import TracingOptions
from rankscope.privacy import Redactor
from rankscope.spool import spools
from rankscope.testing import MemoryExporter, rows_of
from tests.agent.agent.test_real_gateway import Gateway
from tests.agent.gateways import ScriptedGateway, refuse
from tests.agent.programs import Ended, run_program
from tests.agent.spooled import is_ended, rows_in
from tests.ground.brokers import Broker
from tests.ground.processes import Children, free_port, wait_until
from tests.ingest.gateways import Keys
from tests.ingest.looking import batches_in as batches_of_broker

SYNC = """
import os, sys, time, threading
import rankscope
from rankscope import errors
run = rankscope.init("chars", run_id="r", upload_mode="sync")
with run.trace("answer"):
    with run.span("search", kind="tool"):
        pass
"""

NOWHERE = "127.0.0.1:1"


@pytest.fixture
def scripted() -> Iterator[ScriptedGateway]:
    server = ScriptedGateway()
    yield server
    server.stop()


def names_in(broker: Broker, section: str = "spans") -> list[object]:
    return [row["name"] for batch in batches_of_broker(broker) for row in rows_of(batch, section)]


def run_sync(source: str, home: Path, endpoint: str, **environ: str) -> Ended:
    return run_program(SYNC + source, home, RANKSCOPE_ENDPOINT=endpoint, **environ)


def test_what_was_flushed_in_sync_mode_is_with_the_tier_whatever_becomes_of_the_process(
    children: Children, broker: Broker, tmp_path: Path
) -> None:
    gateway = Gateway(children, broker)

    ended = run_sync("assert run.flush() is True\nos._exit(7)\n", tmp_path, gateway.address)

    assert ended.code == 7, ended.err
    assert sorted(map(str, names_in(broker))) == ["answer", "search"]


def test_finish_in_sync_mode_returns_when_the_tier_has_the_last_word(
    children: Children, broker: Broker, tmp_path: Path
) -> None:
    gateway = Gateway(children, broker)

    ended = run_sync("run.finish()\nos._exit(0)\n", tmp_path, gateway.address)

    assert ended.code == 0, ended.err
    kinds = [row["kind"] for batch in batches_of_broker(broker) for row in rows_of(batch, "events")]
    assert kinds == ["end_of_stream"]


def test_a_refused_key_raises_at_the_flush_and_again_at_the_finish(
    children: Children, broker: Broker, tmp_path: Path
) -> None:
    keys = Keys(tmp_path)
    gateway = Gateway(children, broker, RANKSCOPE_KEYS=str(keys.new("chars") and keys.path))
    source = """
for act in (run.flush, run.finish):
    began = time.monotonic()
    try:
        act(timeout=60)
    except errors.Unavailable as error:
        print("RANKSCOPE_KEY" in str(error), time.monotonic() - began < 30)
"""

    ended = run_sync(source, tmp_path / "home", gateway.address, RANKSCOPE_KEY="rsk_00000000_wrong")

    assert (ended.code, ended.out.split()) == (0, ["True"] * 4), ended.err
    assert "rsk_00000000_wrong" not in ended.err
    assert not batches_of_broker(broker)
    assert len(rows_in(tmp_path / "home" / "spool", "spans")) == 2


def test_a_gateway_that_is_not_there_is_no_error_of_init_and_one_of_flush(tmp_path: Path) -> None:
    source = """
try:
    run.flush(timeout=0.5)
except errors.Unavailable as error:
    print(error)
run.hurry()
"""

    ended = run_sync(source, tmp_path, NOWHERE)

    (folder,) = spools(tmp_path / "spool")
    assert f"has not accepted all of run r yet (the gateway at {NOWHERE}" in ended.out
    assert f"the data is safe in {folder}" in ended.out
    assert is_ended(folder)


def test_a_flush_that_waits_is_answered_when_the_gateway_comes(tmp_path: Path) -> None:
    port = free_port()
    with ThreadPoolExecutor(1) as pool:
        ending = pool.submit(run_sync, "print(run.flush(timeout=60))\nos._exit(0)\n", tmp_path, f"127.0.0.1:{port}")
        wait_until(lambda: len(rows_in(tmp_path / "spool", "spans")) == 2, timeout_s=60, what="spool")
        gateway = ScriptedGateway(port)

        ended = ending.result()

    gateway.stop()
    assert ended.out.split() == ["True"], ended.err
    assert gateway.accepted


def test_the_end_of_a_process_says_what_the_tier_does_not_have_and_keeps_its_exit_code(tmp_path: Path) -> None:
    ended = run_sync("run.hurry()\nsys.exit(3)\n", tmp_path, NOWHERE)

    assert ended.code == 3
    assert "Traceback" not in ended.err
    assert any("has not accepted all of run r yet" in line for line in ended.said)


def test_an_error_of_the_program_is_not_hidden_by_what_the_tier_did_not_take(tmp_path: Path) -> None:
    source = """
run.hurry()
with run:
    raise LookupError("mine")
"""

    ended = run_sync(source, tmp_path, NOWHERE)

    assert ended.code == 1
    assert ended.err.rstrip().endswith("LookupError: mine")
    assert "During handling" not in ended.err


def test_sigterm_in_sync_mode_waits_no_longer_than_in_any_other(tmp_path: Path) -> None:
    source = """
import signal
threading.Timer(5.0, lambda: os._exit(9)).start()
os.kill(os.getpid(), signal.SIGTERM)
"""

    ended = run_sync(source, tmp_path, NOWHERE)

    assert ended.code == -15, ended.err
    assert rows_in(tmp_path / "spool", "events")[-1]["kind"] == "end_of_stream"


def test_a_batch_refused_for_good_is_an_error_of_the_next_flush_and_of_no_other(
    scripted: ScriptedGateway, tmp_path: Path
) -> None:
    scripted.answers.extend([refuse(grpc.StatusCode.INVALID_ARGUMENT, "no such section")] * 3)
    source = """
for _ in range(2):
    try:
        print(run.flush(timeout=30))
    except errors.Rejected as error:
        print("refused" if "no such section" in str(error) else error)
"""

    ended = run_sync(source, tmp_path, scripted.endpoint)

    assert ended.out.split() == ["refused", "True"], ended.err


def test_without_any_gateway_known_a_flush_in_sync_mode_says_so_at_once(tmp_path: Path) -> None:
    source = """
try:
    run.flush(timeout=3_600)
except errors.Unavailable as error:
    print(error)
"""

    ended = run_program(SYNC + source, tmp_path)

    assert "no gateway is known: set RANKSCOPE_ENDPOINT" in ended.out
    assert rows_in(tmp_path / "spool", "spans")


def test_a_flush_makes_no_second_copy_of_what_is_sealed(scripted: ScriptedGateway, tmp_path: Path) -> None:
    ended = run_sync("for _ in range(20): run.flush()\nrun.finish()\n", tmp_path, scripted.endpoint)

    assert ended.code == 0, ended.err
    assert [sealed.seq for sealed in scripted.accepted] == list(range(len(scripted.accepted)))
    assert len(scripted.accepted) <= 5


def test_a_wait_for_the_tier_can_be_asked_for_in_any_mode(scripted: ScriptedGateway, tmp_path: Path) -> None:
    scripted.lags.set()
    source = """
import rankscope
run = rankscope.init("chars", run_id="r", agent="thread")
run.log_metric("loss", 1)
run.finish(wait="accepted", timeout=30)
"""

    ended = run_program(source, tmp_path, RANKSCOPE_ENDPOINT=scripted.endpoint)

    assert ended.code == 0, ended.err
    assert [row["kind"] for batch in scripted.accepted for row in _events(batch.payload)] == ["end_of_stream"]


def test_in_spool_mode_only_files_are_written_though_a_gateway_is_there(
    scripted: ScriptedGateway, tmp_path: Path
) -> None:
    source = """
import sys
import rankscope
run = rankscope.init("chars", run_id="r", upload_mode="spool")
with run.trace("answer"):
    pass
print(run.flush())
run.finish()
print("grpc" in sys.modules)
"""

    ended = run_program(source, tmp_path, RANKSCOPE_ENDPOINT=scripted.endpoint)

    assert ended.out.split() == ["True", "False"], ended.err
    assert not scripted.arrived
    assert not scripted.claims
    assert sorted(entry.name for entry in (tmp_path / "spool").iterdir()) == [spools(tmp_path / "spool")[0].name]
    assert [row["name"] for row in rows_in(tmp_path / "spool", "spans")] == ["answer"]


def test_settings_that_contradict_each_other_end_init_and_leave_nothing_behind(tmp_path: Path) -> None:
    ended = run_program(SYNC, tmp_path, RANKSCOPE_AGENT="process")

    assert ended.code == 1
    assert "ConfigError: upload_mode is 'sync'" in ended.err
    assert "agent is 'process'" in ended.err
    assert list(tmp_path.iterdir()) == []


def test_what_was_flushed_in_async_mode_outlives_a_process_killed_at_once(tmp_path: Path) -> None:
    source = """
import os, signal
import rankscope
run = rankscope.init("chars", run_id="r")
for index in range(3_000):
    with run.trace(f"t{index}"):
        pass
with run.trace("last") as last:
    pass
last.flush()
os.kill(os.getpid(), signal.SIGKILL)
"""

    ended = run_program(source, tmp_path, RANKSCOPE_AGENT="none")

    assert ended.code == -9, ended.err
    assert len(rows_in(tmp_path / "spool", "spans")) == 3_001


def test_a_wrong_redact_hook_is_an_error_of_init_and_a_right_one_masks(tmp_path: Path) -> None:
    source = """
import rankscope
from rankscope.errors import ConfigError
try:
    rankscope.init("chars", redact="mask")
except ConfigError as error:
    print(error)
run = rankscope.init("chars", run_id="r", redact=lambda text: text.replace("Ada", "[name]"), redact_keys=["ssn"])
with run.trace("ask Ada", attributes={"ssn": "078-05-1120", "city": "Paris"}):
    pass
run.alert("Ada waits", "for Ada", level="error")
"""

    ended = run_program(source, tmp_path, RANKSCOPE_AGENT="none")

    assert "redact is 'mask': it is a function" in ended.out
    written = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    assert b"Ada" not in written
    assert b"078-05-1120" not in written
    (span,) = rows_in(tmp_path / "spool", "spans")
    assert (span["name"], span["attributes"]) == ("ask [name]", {"ssn": "[REDACTED]", "city": "Paris"})
    alert = rows_in(tmp_path / "spool", "events")[0]
    assert (alert["kind"], alert["name"], alert["payload"]) == ("alert", "[name] waits", '{"text": "for [name]"}')


def test_a_redact_hook_that_fails_masks_the_whole_text_and_is_counted() -> None:
    exporter = MemoryExporter()
    redactor = Redactor(hook=lambda text: str(1 // (text == "")))

    with Run(exporter, tracing=TracingOptions(redactor=redactor)) as run:
        with run.trace("ask Ada", attributes={"city": "Paris"}):
            pass
        assert run.flush()
        faults = run.faults

    (span,) = exporter.rows("spans")
    assert "Ada" not in str(span)
    assert "Paris" not in str(span)
    assert sum(count for fault, count in faults.items() if "redact hook" in fault) > 0


def _events(payload: bytes) -> list[dict[str, object]]:
    from rankscope_proto.v1.batch_pb2 import Batch

    return list(rows_of(Batch.FromString(payload), "events"))
