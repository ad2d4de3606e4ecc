"""What every command has in common: exit statuses, help, JSON, what is missing."""

import socket
import subprocess
import sys
from pathlib import Path

import pytest

from rankscope.cli._program import ORDER
from tests.cli.programs import rankscope, run, without_modules
from tests.ground.brokers import Broker
from tests.ground.processes import free_port
from tests.ground.stacks import clean_environ

OURS = (
    *("up", "demo", "run", "agent", "drain", "wait", "query", "sql", "explain", "tail"),
    *("runs", "trace", "traces", "captures", "profile", "hits", "rm", "doctor", "version"),
    *("stragglers", "hang", "check"),
)
GROUPS = ("dlq", "keys")
OF_KEYS = ("keys create", "keys ls", "keys revoke")
OF_RANK_3 = {"RANK": "3", "WORLD_SIZE": "4", "LOCAL_RANK": "3"}
TIERS = ("gateway", "writer", "query-service", "migrate")


def test_plain_rankscope_says_where_data_lies_and_what_to_do_next(tmp_path: Path) -> None:
    answer = rankscope(home=tmp_path)

    assert answer.status == 0
    assert str(tmp_path) in answer.stdout
    assert "rankscope up" in answer.stdout
    assert "rankscope demo" in answer.stdout


def test_help_lists_every_command(tmp_path: Path) -> None:
    answer = rankscope("--help", home=tmp_path)

    listed = [line.split()[0] for line in answer.stdout.partition("Commands:")[2].splitlines() if line[2:3].strip()]
    assert listed == list(ORDER)
    assert set(listed) == {*OURS, *TIERS, *GROUPS}


@pytest.mark.parametrize("command", [*OURS, *OF_KEYS])
def test_help_of_a_command_has_one_example_and_an_environment_variable_for_each_option(
    command: str, tmp_path: Path
) -> None:
    text = rankscope(*command.split(), "--help", home=tmp_path).stdout

    options = [line for line in text.splitlines() if line.startswith("  --")]
    assert text.count("Example: rankscope") == 1
    assert " ".join(text.split()).count("[env var:") >= len(options)


@pytest.mark.parametrize("command", TIERS)
def test_help_of_a_tier_is_the_tiers_own(command: str, tmp_path: Path) -> None:
    answer = rankscope(command, "--help", home=tmp_path)

    assert answer.status == 0
    assert f"Usage: rankscope {command}" in answer.stdout
    assert "RANKSCOPE_" in answer.stdout


def test_version_is_json_when_asked(tmp_path: Path) -> None:
    answer = rankscope("version", "--json", home=tmp_path)

    assert answer.status == 0
    assert set(answer.json) == {"rankscope", "python"}


@pytest.mark.parametrize(
    "wrong",
    [["nope"], ["query"], ["runs", "--limit", "0"], ["up", "--wait-ready"], ["trace", "--trace", "0", "--step", "1"]],
)
def test_a_wrong_call_is_status_2(wrong: list[str], tmp_path: Path) -> None:
    answer = rankscope(*wrong, home=tmp_path)

    assert answer.status == 2
    assert answer.stderr.startswith("error: ")
    assert not answer.stdout


@pytest.mark.parametrize("command", [["doctor"], ["runs"], ["query", "rank == 0"], ["sql", "SELECT 1"], ["trace"]])
def test_a_url_with_a_password_is_a_wrong_call_and_its_password_is_not_told(command: list[str], tmp_path: Path) -> None:
    answer = rankscope(*command, "--url", "http://bob:s3cr3t@127.0.0.1:1", home=tmp_path)

    assert answer.status == 2
    assert "s3cr3t" not in answer.stdout + answer.stderr


def test_version_is_an_option_too(tmp_path: Path) -> None:
    assert rankscope("--version", home=tmp_path).stdout == rankscope("version", home=tmp_path).stdout


def test_plain_rankscope_is_json_when_asked(tmp_path: Path) -> None:
    answer = rankscope("--json", home=tmp_path)

    assert answer.status == 0
    assert answer.json["data_folder"] == str(tmp_path)
    assert answer.json["server"] is None


def test_json_before_the_command_is_a_wrong_call_that_says_where_it_goes(tmp_path: Path) -> None:
    answer = rankscope("--json", "runs", home=tmp_path)

    assert answer.status == 2
    assert "after the command" in answer.error["message"]


@pytest.mark.parametrize(
    ("command", "variable"),
    [
        ("gateway", "RANKSCOPE_GATEWAY_LISTEN"),
        ("writer", "RANKSCOPE_CLICKHOUSE_URL"),
        ("query-service", "RANKSCOPE_CLICKHOUSE_URL"),
        ("migrate", "RANKSCOPE_CLICKHOUSE_URL"),
    ],
)
def test_a_tier_with_a_wrong_setting_is_status_2_and_json_when_asked(
    command: str, variable: str, tmp_path: Path
) -> None:
    wrong = {variable: "ftp://nowhere"}

    by_option = rankscope(command, "--json", home=tmp_path, environ=wrong)
    by_variable = rankscope(command, home=tmp_path, environ=wrong | {"RANKSCOPE_JSON": "1"})

    assert (by_option.status, by_variable.status) == (2, 2)
    assert variable in by_option.last_error["message"]
    assert by_variable.last_error == by_option.last_error
    assert set(by_option.last_error) == {"code", "message", "hint", "position", "expected"}


@pytest.mark.parametrize(
    ("command", "variable"), [("gateway", "RANKSCOPE_GATEWAY_LISTEN"), ("query-service", "RANKSCOPE_QUERY_LISTEN")]
)
def test_a_tier_whose_port_is_busy_is_status_1_and_names_it(
    command: str, variable: str, tmp_path: Path, broker: Broker
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as busy:
        port = busy.getsockname()[1]
        environ = {
            variable: f"127.0.0.1:{port}",
            "RANKSCOPE_REDIS_URL": broker.url,
            "RANKSCOPE_CLICKHOUSE_URL": f"chdb://{tmp_path}/store",
        }
        answer = rankscope(command, "--json", home=tmp_path, environ=environ)

    assert answer.status == 1
    assert str(port) in answer.last_error["message"]


def test_with_json_an_error_is_one_document_on_stderr(tmp_path: Path) -> None:
    answer = rankscope("query", "--nope", "--json", home=tmp_path)

    assert answer.status == 2
    assert not answer.stdout
    assert answer.error["code"] == "usage"
    assert set(answer.error) == {"code", "message", "hint", "position", "expected"}


def test_reading_where_there_is_no_data_is_status_3_and_names_the_folder(tmp_path: Path) -> None:
    answer = rankscope("runs", "--json", home=tmp_path)

    assert answer.status == 3
    assert answer.error["code"] == "nothing_kept"
    assert str(tmp_path) in answer.error["message"]
    assert "rankscope demo" in answer.error["hint"]


def test_an_address_where_nobody_answers_is_status_1_and_named(tmp_path: Path) -> None:
    url = f"http://127.0.0.1:{free_port()}"

    answer = rankscope("runs", "--url", url, "--json", home=tmp_path)

    assert answer.status == 1
    assert answer.error["code"] == "unreachable"
    assert url in answer.error["message"]


@pytest.mark.parametrize("command", ["gateway", "writer", "migrate", "query-service"])
def test_a_tier_without_its_packages_says_what_to_install_in_one_sentence(command: str, tmp_path: Path) -> None:
    answer = without_modules(["pydantic_settings"], command, home=tmp_path)

    assert answer.status == 1
    assert answer.stderr == (
        f"error: rankscope {command} needs the package 'pydantic_settings': pip install 'rankscope[server]'\n"
    )


def test_up_without_the_embedded_store_says_what_to_install(tmp_path: Path) -> None:
    answer = without_modules(["chdb"], "up", "--json", home=tmp_path)

    assert answer.status == 1
    assert answer.error["code"] == "missing_extra"
    assert "pip install 'rankscope[embedded,server]'" in answer.error["message"]


def test_the_demo_without_torch_starts_nothing_and_says_what_to_install(tmp_path: Path) -> None:
    answer = without_modules(["torch"], "demo", home=tmp_path / "home")

    assert answer.status == 1
    assert "pip install 'rankscope[all]'" in answer.stderr
    assert not (tmp_path / "home").exists()


def test_doctor_tells_what_is_installed_and_who_has_the_folder(tmp_path: Path) -> None:
    answer = rankscope("doctor", "--json", home=tmp_path / "new", environ=OF_RANK_3)

    report = answer.json["environment"]
    assert answer.status == 0
    assert report["data_folder"]["path"] == str(tmp_path / "new")
    assert report["data_folder"]["holder"] is None
    assert report["server"]["query"] is None
    assert report["packages"]["grpcio"]
    assert report["rank"] == {"rank": 3, "world_size": 4, "source": "torchrun", "problem": None}
    assert not (tmp_path / "new").exists()


def test_doctor_fails_where_a_trainer_could_not_know_its_rank(tmp_path: Path) -> None:
    answer = rankscope("doctor", "--json", home=tmp_path, environ=OF_RANK_3 | {"RANK": "7"})

    assert answer.status == 1
    assert "rank 7 of a world of 4" in answer.json["environment"]["rank"]["problem"]


def test_doctor_fails_where_the_server_does_not_answer(tmp_path: Path) -> None:
    answer = rankscope("doctor", "--url", f"http://127.0.0.1:{free_port()}", "--json", home=tmp_path)

    assert answer.status == 1
    assert "not reachable" in answer.json["environment"]["server"]["problem"]


def test_a_folder_that_others_can_write_is_told_in_one_line(tmp_path: Path) -> None:
    tmp_path.chmod(0o777)

    started = without_modules(["chdb"], "up", home=tmp_path)
    doctor = rankscope("doctor", home=tmp_path)
    document = rankscope("doctor", "--json", home=tmp_path).json

    for said in (started.stderr, doctor.stdout):
        (line,) = [line for line in said.splitlines() if "mode 0777" in line]
        assert line.startswith("warning: the data folder")
    assert "mode 0777" in document["environment"]["data_folder"]["exposure"]


def test_a_reader_that_goes_away_is_no_fault(tmp_path: Path) -> None:
    program = "import sys; from rankscope.cli import main; sys.exit(main(['doctor']))"

    done = subprocess.run(  # noqa: S602 - a pipe whose reader ends at once is what is tested
        f"'{sys.executable}' -c \"{program}\" | true",
        check=False,
        shell=True,
        capture_output=True,
        text=True,
        env=clean_environ(RANKSCOPE_HOME=str(tmp_path)),
    )

    assert not done.stderr


FULL = ("/dev/full", "No space left on device")
CLOSED = ("&-", "stdout is closed")


@pytest.mark.parametrize(
    ("command", "where"),
    [
        ("doctor", FULL),
        ("doctor --json", FULL),
        ("--help", FULL),
        ("doctor", CLOSED),
        ("doctor --json", CLOSED),
    ],
)
def test_an_answer_with_nowhere_to_go_is_one_line_on_stderr_and_status_1(
    command: str, where: tuple[str, str], tmp_path: Path
) -> None:
    stdout, why = where

    answer = run(["bash", "-c", f"'{sys.executable}' -m rankscope {command} >{stdout}"], home=tmp_path)

    (line,) = answer.stderr.splitlines()
    assert answer.status == 1
    assert why in line


def test_an_error_with_nowhere_to_go_still_has_its_status(tmp_path: Path) -> None:
    answer = run(["bash", "-c", f"'{sys.executable}' -m rankscope runs 2>/dev/full"], home=tmp_path)

    assert answer.status == 3


def test_without_a_home_the_data_folder_is_a_temporary_one_of_this_user(tmp_path: Path) -> None:
    environ = {"HOME": "", "RANKSCOPE_HOME": "", "XDG_DATA_HOME": "", "TMPDIR": str(tmp_path)}

    answer = rankscope("doctor", "--json", home=tmp_path, environ=environ)

    assert answer.status == 0
    assert answer.json["environment"]["data_folder"]["path"].startswith(str(tmp_path))


@pytest.mark.parametrize(
    "command", [("rm", "", "--yes"), ("doctor", ""), ("trace", " "), ("query", "first", "--run", "")]
)
def test_an_empty_run_id_is_a_wrong_call(command: tuple[str, ...], tmp_path: Path) -> None:
    answer = rankscope(*command, home=tmp_path)

    assert answer.status == 2
    assert "a run's id is not empty" in answer.stderr
