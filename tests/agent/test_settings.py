"""Settings: one meaning each, argument before environment before default, wrong values said by name."""

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from rankscope import _discovery
from rankscope._discovery import Discovery
from rankscope._home import data_folder
from rankscope._settings import SETTINGS, Settings
from rankscope._tracing_options import TracingOptions
from rankscope.errors import ConfigError
from rankscope.privacy import Redactor
from tests.house.tree import text_of


def test_an_argument_wins_over_the_environment_and_that_over_the_default() -> None:
    environ = {"RANKSCOPE_PROJECT": "from the environment", "RANKSCOPE_HOME": "/a"}

    assert Settings.load(environ, project="given").project == "given"
    assert Settings.load(environ, project=None).project == "from the environment"
    assert Settings.load({"RANKSCOPE_HOME": "/a"}).project == "default"


def test_every_setting_is_read() -> None:
    environ = {
        "RANKSCOPE_ENDPOINT": "http://host:1/",
        "RANKSCOPE_MESH": "dp=2, tp=0",
        "RANKSCOPE_QUIET": "1",
        "RANKSCOPE_UPLOAD_MODE": "disabled",
        "RANKSCOPE_LEVEL": "0",
        "RANKSCOPE_EVERY": "5",
        "RANKSCOPE_HOME": "/a",
    }

    chosen = Settings.load(environ)

    assert (chosen.endpoint, chosen.mesh, chosen.quiet) == (("host:1",), (("dp", 2), ("tp", 0)), True)
    assert (chosen.upload_mode, chosen.level, chosen.every, chosen.home) == ("disabled", 0, 5, Path("/a"))
    assert Settings.load({}, mesh={"pp": 1}, home="/b").mesh == (("pp", 1),)


def test_every_setting_of_the_spool_and_of_who_sends_is_read() -> None:
    environ = {
        "RANKSCOPE_ENDPOINT": "https://one:1/, two:2",
        "RANKSCOPE_SPOOL": "/s",
        "RANKSCOPE_SPOOL_BYTES": "64M",
        "RANKSCOPE_SPOOL_FSYNC": "always",
        "RANKSCOPE_SPOOL_ANY_FS": "1",
        "RANKSCOPE_AGENT": "thread",
        "RANKSCOPE_KEY": "rsk_1",
        "RANKSCOPE_TLS_CA": "/ca",
        "RANKSCOPE_TLS_CERT": "/cert",
        "RANKSCOPE_TLS_KEY": "/key",
        "RANKSCOPE_INSECURE": "1",
    }

    chosen = Settings.load(environ, home="/h")

    assert chosen.endpoint == ("https://one:1", "two:2")
    assert (chosen.spool_root, chosen.spool_bytes, chosen.spool_fsync) == (Path("/s"), 64 * 1024**2, "always")
    assert (chosen.agent, chosen.key, chosen.insecure, chosen.spool_any_fs) == ("thread", "rsk_1", True, True)
    assert (chosen.tls_ca, chosen.tls_cert, chosen.tls_key) == (Path("/ca"), Path("/cert"), Path("/key"))
    assert Settings.load({}, home="/h", endpoint=["a:1", "b:2"]).endpoint == ("a:1", "b:2")
    assert Settings.load({}, home="/h").spool_root == Path("/h/spool")


def test_one_wrong_endpoint_of_several_is_named() -> None:
    with pytest.raises(ConfigError, match="RANKSCOPE_ENDPOINT is 'b'"):
        Settings.load({"RANKSCOPE_ENDPOINT": "a:1,b"}, home="/h")


@pytest.mark.parametrize(
    "endpoint",
    [
        "https://rsk_0badc0de_x@host:8471",
        "rsk_0badc0de_x",
        "a:1,u:0badc0de@b:2",
        "https://h:1/?key=0badc0de",
        "h#0badc0de:1",
    ],
)
def test_a_key_in_an_endpoint_is_refused_without_being_shown(endpoint: str) -> None:
    with pytest.raises(ConfigError, match="a key into RANKSCOPE_KEY") as caught:
        Settings.load({"RANKSCOPE_ENDPOINT": endpoint}, home="/h")

    assert "RANKSCOPE_ENDPOINT" in str(caught.value)
    assert "0badc0de" not in str(caught.value)


def test_an_endpoint_with_a_space_in_it_is_none() -> None:
    with pytest.raises(ConfigError, match="write host:port"):
        Settings.load({"RANKSCOPE_ENDPOINT": "one two:1"}, home="/h")


def test_a_key_is_never_shown() -> None:
    assert "rsk_secret" not in repr(Settings.load({"RANKSCOPE_KEY": "rsk_secret"}, home="/h"))
    with pytest.raises(ConfigError, match="RANKSCOPE_KEY holds no key") as caught:
        Settings.load({"RANKSCOPE_KEY": "rsk secret"}, home="/h")
    assert "secret" not in str(caught.value)


def test_every_setting_of_tracing_is_read() -> None:
    environ = {
        "RANKSCOPE_TRACE_SAMPLE_RATE": "0.25",
        "RANKSCOPE_TRACE_SAMPLE_BY_KIND": "tool=0.1, Model=1",
        "RANKSCOPE_MAX_SPANS_PER_TRACE": "7",
        "RANKSCOPE_REDACT_KEYS": "ssn, patient",
        "RANKSCOPE_REDACT_PATTERNS": "acme-[0-9]{3,5}\nACME",
        "RANKSCOPE_PREVIEW_BYTES": "128",
        "RANKSCOPE_PROPAGATE_THREADS": "1",
    }

    chosen = Settings.load(environ, home="/h")

    tracing = TracingOptions.of(chosen)
    assert (tracing.sample_rate, tracing.max_spans_per_trace) == (0.25, 7)
    assert tracing.sample_by_kind == {"tool": 0.1, "model": 1.0}
    assert (chosen.redact_keys, chosen.redact_patterns) == (("ssn", "patient"), ("acme-[0-9]{3,5}", "ACME"))
    assert (chosen.preview_bytes, chosen.propagate_threads) == (128, True)


def test_what_a_sequence_or_a_mapping_says_is_taken_from_an_argument_too() -> None:
    chosen = Settings.load(
        {"RANKSCOPE_HOME": "/h"},
        trace_sample_by_kind={"tool": 0.5},
        redact_keys=["ssn"],
        redact_patterns=("a,b",),
    )

    assert (chosen.trace_sample_by_kind, chosen.redact_keys) == ((("tool", 0.5),), ("ssn",))
    assert chosen.redact_patterns == ("a,b",)
    for name, wrong in (("redact_keys", 3), ("redact_patterns", [b"x"]), ("trace_sample_rate", True)):
        with pytest.raises(ConfigError, match=SETTINGS[name].variable):
            Settings.load({"RANKSCOPE_HOME": "/h"}, **{name: wrong})


@pytest.mark.parametrize(
    ("mode", "offline", "agent", "sender"),
    [
        ("async", False, None, "process"),
        ("async", False, "thread", "thread"),
        ("async", False, "none", "none"),
        ("async", True, None, "thread"),
        ("async", True, "none", "none"),
        ("sync", False, None, "thread"),
        ("sync", True, "thread", "thread"),
        ("spool", False, None, "none"),
        ("spool", True, "none", "none"),
    ],
)
def test_who_sends_follows_from_the_mode_and_the_folder_unless_somebody_said_it(
    mode: str, *, offline: bool, agent: str | None, sender: str
) -> None:
    chosen = Settings.load({}, home="/h", upload_mode=mode, agent=agent, offline_dir="/o" if offline else None)

    chosen.check_together()
    assert chosen.sender == sender
    assert chosen.spool_root == Path("/o" if offline else "/h/spool")


def test_a_folder_that_a_command_names_is_the_one_it_works_on() -> None:
    environ = {"RANKSCOPE_OFFLINE_DIR": "/o", "RANKSCOPE_HOME": "/h"}

    assert Settings.load(environ, spool="/s").spool_root == Path("/s")
    Settings.load(environ, spool="/o").check_together()  # what `rankscope run` hands on


@pytest.mark.parametrize(
    ("arguments", "first", "second"),
    [
        ({"upload_mode": "spool", "agent": "process"}, "upload_mode is 'spool'", "agent is 'process'"),
        ({"upload_mode": "spool", "agent": "thread"}, "upload_mode is 'spool'", "agent is 'thread'"),
        ({"upload_mode": "sync", "agent": "process"}, "upload_mode is 'sync'", "agent is 'process'"),
        ({"upload_mode": "sync", "agent": "none"}, "upload_mode is 'sync'", "agent is 'none'"),
        ({"offline_dir": "/o", "agent": "process"}, "offline_dir is '/o'", "agent is 'process'"),
        ({"offline_dir": "/o", "spool": "/s"}, "offline_dir is '/o'", "spool is '/s'"),
    ],
)
def test_two_settings_that_contradict_each_other_are_both_named(
    arguments: dict[str, object], first: str, second: str
) -> None:
    chosen = Settings.load({}, home="/h", **arguments)

    with pytest.raises(ConfigError, match=first) as caught:
        chosen.check_together()
    assert second in str(caught.value)
    Settings.load({}, home="/h", **{**arguments, "upload_mode": "disabled"}).check_together()


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("RANKSCOPE_ENDPOINT", "host:port"),
        ("RANKSCOPE_ENDPOINT", " , "),
        ("RANKSCOPE_AGENT", "sidecar"),
        ("RANKSCOPE_SPOOL_BYTES", "1M"),
        ("RANKSCOPE_SPOOL_BYTES", "many"),
        ("RANKSCOPE_SPOOL_FSYNC", "never"),
        ("RANKSCOPE_ENDPOINT", "localhost"),
        ("RANKSCOPE_ENDPOINT", "host:99999"),
        ("RANKSCOPE_PROJECT", "x" * 129),
        ("RANKSCOPE_PROJECT", "a\nb"),
        ("RANKSCOPE_PROJECT", "a/b"),
        ("RANKSCOPE_RUN_ID", "\x00"),
        ("RANKSCOPE_RUN_ID", "sweep/3"),
        ("RANKSCOPE_RUN_ID", ".."),
        ("RANKSCOPE_RUN_ID", "a\udcff"),
        ("RANKSCOPE_RANK", str(2**31)),
        ("RANKSCOPE_ENDPOINT", "host:²"),
        ("RANKSCOPE_MESH", "dp=²"),
        ("RANKSCOPE_MESH", "dp=4294967296"),
        ("RANKSCOPE_MESH", "x" * 65 + "=1"),
        ("RANKSCOPE_MESH", ",".join(f"axis{index}=0" for index in range(17))),
        ("RANKSCOPE_LAUNCH_ID", "abc"),
        ("RANKSCOPE_RANK", "-1"),
        ("RANKSCOPE_WORLD_SIZE", "two"),
        ("RANKSCOPE_MESH", "dp"),
        ("RANKSCOPE_UPLOAD_MODE", "offline"),
        ("RANKSCOPE_QUIET", "perhaps"),
        ("RANKSCOPE_EVERY", "1.5"),
        ("RANKSCOPE_TRACE_SAMPLE_RATE", "1.5"),
        ("RANKSCOPE_TRACE_SAMPLE_RATE", "nan"),
        ("RANKSCOPE_TRACE_SAMPLE_BY_KIND", "tool"),
        ("RANKSCOPE_TRACE_SAMPLE_BY_KIND", "tol=0.5"),
        ("RANKSCOPE_MAX_SPANS_PER_TRACE", "0"),
        ("RANKSCOPE_REDACT_PATTERNS", "acme-[0-9"),
        ("RANKSCOPE_REDACT_PATTERNS", "x*"),
        ("RANKSCOPE_PREVIEW_BYTES", "10"),
        ("RANKSCOPE_PREVIEW_BYTES", "1000000"),
        ("RANKSCOPE_PROPAGATE_THREADS", "some"),
    ],
)
def test_a_wrong_value_is_said_with_its_variable(variable: str, value: str) -> None:
    with pytest.raises(ConfigError, match=variable) as caught:
        Settings.load({variable: value, "RANKSCOPE_HOME": "/a"})

    assert repr(value)[1:-1][:20] in str(caught.value)


def test_every_setting_is_documented() -> None:
    manual = text_of("agent/README.md")

    for name, setting in SETTINGS.items():
        assert f"| `{setting.variable}` | {setting.default} | {setting.meaning} |" in manual, name


def test_the_data_folder_is_found_without_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))

    assert data_folder({"RANKSCOPE_HOME": "/a", "XDG_DATA_HOME": "/b", "HOME": str(tmp_path)}) == Path("/a")
    assert data_folder({"XDG_DATA_HOME": "/b", "HOME": str(tmp_path)}) == Path("/b/rankscope")
    assert data_folder({"HOME": str(tmp_path)}) == tmp_path / ".local/share/rankscope"
    folder = data_folder({})
    assert folder == tmp_path / f"rankscope-{os.getuid()}"
    assert folder.stat().st_mode & 0o777 == 0o700
    assert data_folder({"HOME": "/nonexistent"}) == folder


def test_a_temporary_data_folder_open_to_others_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    (tmp_path / f"rankscope-{os.getuid()}").mkdir(mode=0o755)

    with pytest.raises(ConfigError, match="set RANKSCOPE_HOME"):
        data_folder({})


def test_a_running_server_is_found_and_one_that_is_gone_is_not(tmp_path: Path) -> None:
    here = Discovery("127.0.0.1:1", "http://127.0.0.1:2", os.getpid(), "ab", "0.1.0", broker="unix:///run/broker.sock")

    assert _discovery.read(tmp_path) is None
    _discovery.write(tmp_path, here)
    assert _discovery.read(tmp_path) == here
    assert (tmp_path / "up.json").stat().st_mode & 0o777 == 0o600
    older = json.loads((tmp_path / "up.json").read_text())
    del older["broker"]
    (tmp_path / "up.json").write_text(json.dumps(older))
    assert _discovery.read(tmp_path) == replace(here, broker="")
    _discovery.write(tmp_path, Discovery("127.0.0.1:1", "http://127.0.0.1:2", 2**22 - 1, "ab", "0.1.0"))
    assert _discovery.read(tmp_path) is None
    _discovery.remove(tmp_path)
    _discovery.remove(tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("name", "value"), [("offline_dir", 5), ("max_spans_per_trace", 1.5), ("rank", 0.5), ("redact_patterns", [""])]
)
def test_an_argument_that_would_be_taken_for_another_value_is_refused(name: str, value: object) -> None:
    with pytest.raises(ConfigError, match=f"RANKSCOPE_{name.upper()}"):
        Settings.load({}, home="/h", **{name: value})


@pytest.mark.parametrize("pattern", ["x{99999999999}", "(" * 5_000 + ")" * 5_000])
def test_a_pattern_that_is_too_much_is_refused_wherever_it_is_given(pattern: str) -> None:
    with pytest.raises(ConfigError, match=r"RANKSCOPE_REDACT_PATTERNS.*is no regular expression"):
        Settings.load({}, home="/h", redact_patterns=[pattern])
    with pytest.raises(ValueError, match="is no regular expression"):
        Redactor(patterns=[pattern])


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"gateway": "a"}', '{"pid": "x"}', "\x80"])
def test_a_discovery_file_that_is_none_is_no_server(tmp_path: Path, text: str) -> None:
    (tmp_path / "up.json").write_bytes(text.encode("latin-1"))

    assert _discovery.read(tmp_path) is None
