"""What a process says of its run: at the start, and at the end.

Promises: secrets on the command line and in the configuration are masked before anything leaves the
process; a configuration that is no JSON is kept as text, never an error.
"""

import json
import math
import os
import platform
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

from rankscope._block import Block, Column
from rankscope._bounds import DOCUMENT, PATH, TAGS, VALUE, cut
from rankscope._labels import text_of
from rankscope.privacy import REDACTED, Redactor, number_name
from rankscope_proto.names import Role, RunStatus

_KEYS_KEPT = 1_000
_KEY_BYTES = 100


@dataclass(frozen=True, slots=True)
class WatchDefaults:
    """What `watch` captures where the call does not say; the settings of the same names say what each means.

    None, or empty: the probe's own default.
    """

    level: int | None = None
    every: int | None = None
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    roles: tuple[Role, ...] = ()
    capture_file: Path | None = None


@dataclass(frozen=True, slots=True)
class RunInfo:
    """What a person says of a run.

    Attributes:
        name: For people; may repeat.
        config: Settings of the training; nested mappings and sequences of plain values.
        tags: Words to find the run by.
        facts: Host facts, name → value.
        watch: What `watch` captures where the call does not say.
        url: Where the query service shows the run; "": none is known.
    """

    name: str = ""
    config: Mapping[str, object] = field(default_factory=dict[str, object])
    tags: tuple[str, ...] = ()
    facts: Mapping[str, str] = field(default_factory=dict[str, str])
    watch: WatchDefaults = WatchDefaults()
    url: str = ""


def run_info_block(info: RunInfo, status: RunStatus, *, start_ns: int, redactor: Redactor) -> Block:
    """One row of `run_info`."""
    columns: dict[str, Column] = {
        "status": (status.code,),
        "name": (_label(info.name, redactor),),
        "config": (config_json(info.config, redactor),),
        "tags": tuple(_label(tag, redactor) for tag in info.tags[:TAGS]),
        "tag_n": (len(info.tags[:TAGS]),),
        "command": (masked_command(sys.argv, redactor),),
        "fact_keys": tuple(info.facts),
        "fact_values": tuple(_label(value, redactor) for value in info.facts.values()),
        "fact_n": (len(info.facts),),
        "start": (start_ns,),
    }
    return Block("run_info", 1, columns)


def _label(given: str, redactor: Redactor) -> str:
    """A short text, masked before it is cut: no part of a secret is left at the edge."""
    return redactor.text(text_of(given)[: 2 * PATH])


def config_json(config: Mapping[str, object], redactor: Redactor) -> str:
    """The configuration as a JSON object, secrets masked; what JSON does not know becomes text."""
    try:
        text = json.dumps(_plain(config, redactor), ensure_ascii=False, allow_nan=False)
    except Exception as error:  # noqa: BLE001  # a foreign object's str may raise anything
        text = json.dumps({"unreadable": f"{type(error).__qualname__}: {redactor.text(text_of(error))}"})
    if cut(text, DOCUMENT) is text:
        return text
    keys = [cut(redactor.text(text_of(key, VALUE)), _KEY_BYTES) for key in list(config)[:_KEYS_KEPT]]
    return json.dumps({"too_long": f"{len(text)} characters; {DOCUMENT} bytes are kept", "keys": keys})


def masked_command(arguments: Sequence[str], redactor: Redactor) -> str:
    """The command line with secrets masked: the argument after a secret's option, and what looks like one."""
    shown: list[str] = []
    is_secret = False
    for argument in arguments:
        is_option = argument.startswith("-")
        shown.append(REDACTED if is_secret and not is_option else redactor.text(cut(argument, VALUE)))
        is_secret = is_option and "=" not in argument and redactor.is_secret(argument)
    # Once more as a whole: `curl -u name:password` is two arguments.
    return redactor.text(" ".join(shown))


def host_facts() -> dict[str, str]:
    """What is worth knowing of this host and process, found without touching an accelerator."""
    facts = {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "machine": platform.machine(),
        "cpus": str(os.cpu_count() or 0),
    }
    torch = sys.modules.get("torch")
    version = getattr(torch, "__version__", None)
    if version is not None:
        facts["torch"] = str(version)
    return facts


def _plain(value: object, redactor: Redactor, *, is_secret: bool = False) -> object:
    """The value with mappings as dicts, sequences as lists, other objects as text, NaN as text.

    Text is masked where its key, or a key around it, names a secret; numbers never are.
    """
    if isinstance(value, Mapping):
        items = cast("Mapping[object, object]", value).items()
        texts = [(str(key), item) for key, item in items]
        return {
            redactor.text(key): _plain(item, redactor, is_secret=is_secret or redactor.is_secret(key))
            for key, item in texts
        }
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_plain(item, redactor, is_secret=is_secret) for item in cast("Sequence[object]", value)]
    if isinstance(value, float) and not math.isfinite(value):
        return number_name(value)
    if value is None or isinstance(value, (bool, int, float)):
        return value
    # A text that is too long as a whole stays so.
    return REDACTED if is_secret else redactor.text(str(value)[: DOCUMENT + 1])
