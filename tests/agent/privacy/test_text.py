"""What becomes of a text."""

import sys
import threading
import time
from collections.abc import Callable

import pytest

from rankscope.privacy import REDACTED, Redactor

GITHUB = "gh" + "p_" + "a1B2" * 9
MODEL = "s" + "k-" + "a1B2c3" * 5
PEM = "-" * 5 + "BEGIN {0}-----{1}MIIEvQ1BADANBgkq{1}hkiG9w0BAQEF{1}-----END {0}-----"


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("token=abc123 and more", "token=[REDACTED] and more"),
        ("Authorization: Bearer service-token", "Authorization: [REDACTED]"),
        ("sent Bearer abcdefgh to it", "sent Bearer [REDACTED] to it"),
        ('{"api_key": "abc", "n": 1}', '{"api_key": "[REDACTED]", "n": 1}'),
        ('{\\"password\\": \\"abc\\"}', '{\\"password\\": \\"[REDACTED]\\"}'),
        ("{'token': 'abc123def'}", "{'token': '[REDACTED]'}"),
        ("postgres://me:p@ss@db:5432/x", "postgres://me:[REDACTED]@db:5432/x"),
        ("postgres://me:a/b#c@db:5432/x", "postgres://me:[REDACTED]@db:5432/x"),
        (f"https://{GITHUB}@github.com/a/b", "https://[REDACTED]@github.com/a/b"),
        ("GET /x?token=abcdef&y=1", "GET /x?token=[REDACTED]&y=1"),
        ("login --password abc --lr 1", "login --password [REDACTED] --lr 1"),
        ("curl -u me:abc https://x", "curl -u me:[REDACTED] https://x"),
        ("Cookie: a=b; c=d\nHost: x", "Cookie: [REDACTED]\nHost: x"),
        ("passphrase: correct horse battery, then", "passphrase: [REDACTED], then"),
        ('api_key: str = "abc"', 'api_key: str = "[REDACTED]"'),
        ("<password>abc</password>", "<password>[REDACTED]</password>"),
        ("Server=db;Pwd=abc;Uid=me", "Server=db;Pwd=[REDACTED];Uid=me"),
        ("password: hunter2 and x = 3", "password: [REDACTED] and x = 3"),
        ("API key: abc.", "API key: [REDACTED]."),
        (f"first {MODEL}, then {GITHUB}!", "first [REDACTED], then [REDACTED]!"),
        ("İ" * 9 + f" {GITHUB} é", "İ" * 9 + " [REDACTED] é"),
    ],
)
def test_a_secret_is_replaced_and_what_is_around_it_stays(text: str, kept: str) -> None:
    assert Redactor().text(text) == kept


@pytest.mark.parametrize("newline", ["\n", "\\n", "\r\n"])
@pytest.mark.parametrize("label", ["RSA PRIVATE" + " KEY", "PRIVATE" + " KEY", "PGP PRIVATE" + " KEY BLOCK"])
def test_a_private_key_is_replaced_with_its_frame(label: str, newline: str) -> None:
    assert Redactor().text(f"x {PEM.format(label, newline)} y") == "x [REDACTED] y"


@pytest.mark.parametrize(
    "before",
    [
        "private_key=",
        'PRIVATE_KEY="',
        "token=",
        "token: ",
        "Authorization: ",
        "--api-key=",
        "--api-key ",
        "password = ",
    ],
)
def test_a_private_key_is_replaced_whole_behind_a_name_of_a_secret_too(before: str) -> None:
    key = PEM.format("RSA PRIVATE" + " KEY", "\n")

    assert Redactor().text(f"{before}{key} next") == f"{before}[REDACTED] next"
    assert Redactor().text(f"{before}{key[:60]}") == f"{before}[REDACTED]"


def test_a_long_secret_is_replaced_to_its_end() -> None:
    assert Redactor().text(f"password={'a1b2' * 2_000} next") == "password=[REDACTED] next"
    assert Redactor().text(f"authorization: Bearer {'a1b2' * 2_000}, next") == "authorization: [REDACTED], next"


def test_a_private_key_that_was_cut_is_replaced_to_its_end() -> None:
    assert Redactor().text(PEM.format("PRIVATE" + " KEY", "\n")[:60]) == REDACTED


def test_a_certificate_is_no_secret() -> None:
    text = PEM.format("CERTIFICATE", "\n")

    assert Redactor().text(text) is text


@pytest.mark.parametrize(
    "text",
    [
        "loss_per_token=2.31 tokens=512 token: 17",
        "password: 12 characters at least",
        "token = tokenizer.decode(ids)",
        "Client(password=password, api_key=self.api_key, token=hf_token)",
        "api_key: Optional[str] = None, password: SecretStr",
        'api_key = os.environ["API_KEY"]',
        'url = f"https://{user}:{password}@{host}"',
        "password=${PASSWORD} token=<your token here> secret=***",
        "the bearer attention mask, a basic configuration",
        "the secret of the token: patience",
        "https://host:8080/a@b git@github.com:a/b.git",
        "task-abcdefghijkl risk-adjusted sk-learn-contrib",
        "eyJhbGciOiJIUzI1NiJ9",
        "export PWD=/tmp/x",
        "docker run -u 1000:1000 image",
        "",
        "pw=a",
    ],
)
def test_what_is_no_secret_is_the_same_object(text: str) -> None:
    assert Redactor().text(text) is text


def test_a_number_after_password_counts_from_four_digits_on() -> None:
    assert Redactor().text("password=123456 password=12") == "password=[REDACTED] password=12"


def test_a_labelled_text_is_replaced_where_its_name_is_a_secrets() -> None:
    redactor = Redactor()

    assert redactor.labelled("hfToken", "anything") == REDACTED
    assert redactor.labelled("note", f"see {GITHUB}") == "see [REDACTED]"
    assert redactor.labelled("password", "") == ""
    plain = "plain text"
    assert redactor.labelled("note", plain) is plain


def test_patterns_of_the_user_are_replaced_too() -> None:
    redactor = Redactor(patterns=[r"EMP-\d+", r"(?i)project \w+"])

    assert redactor.text("EMP-1 in Project Zeta") == "[REDACTED] in [REDACTED]"
    assert redactor.preview({"who": "EMP-22"}).text == '{"who":"[REDACTED]"}'


def test_the_hook_sees_texts_that_are_redacted_already() -> None:
    seen: list[str] = []

    def hook(text: str) -> str:
        seen.append(text)
        return text.replace("Ada", "A.")

    assert Redactor(hook=hook).text(f"Ada has {GITHUB}") == "A. has [REDACTED]"
    assert seen == ["Ada has [REDACTED]"]


def test_a_hook_that_changes_nothing_leaves_the_same_object() -> None:
    text = "plain"

    assert Redactor(hook="".join).text(text) is text


def test_a_hook_that_fails_keeps_nothing_of_the_text_and_is_counted() -> None:
    def raises(text: str) -> str:
        raise RuntimeError(text)

    redactor = Redactor(hook=raises)
    no_text = Redactor(hook=lambda _: None)  # pyright: ignore[reportArgumentType]  # what untyped code may do

    assert redactor.text("a private matter") == REDACTED
    assert redactor.preview(["a private matter", 7]).text == '["[REDACTED]",7]'
    assert no_text.text("a private matter") == REDACTED
    assert Redactor(hook=lambda _: sys.exit()).text("a private matter") == REDACTED
    assert (redactor.hook_failures, no_text.hook_failures) == (2, 1)


@pytest.mark.parametrize(
    ("given", "error", "says"),
    [
        ({"patterns": ["("]}, ValueError, r"'\('"),
        ({"patterns": ["x*"]}, ValueError, "empty text"),
        ({"patterns": "abc"}, TypeError, "list"),
        ({"keys": "abc"}, TypeError, "list"),
        ({"keys": ["__"]}, ValueError, "'__'"),
        ({"hook": 5}, TypeError, "function"),
        ({"preview_bytes": 63}, ValueError, "63"),
        ({"preview_bytes": 32_769}, ValueError, "32769"),
    ],
)
def test_a_rule_that_is_none_is_refused_and_named(given: dict[str, object], error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        Redactor(**given)  # pyright: ignore[reportArgumentType]  # what untyped code may do


HOSTILE = [
    *("a", "-", "--a", "key", "key=", "://a", "://a:", "https://a:b@", "eyJ", "eyJabcdef.", "-----BEGIN ", "bearer "),
    *("token'", "sk-", "gh" + "p_", "\\", '"', "basic ", "api ", "a: ", "cookie: a=b;", "cookie: a=b; ", "password: "),
    *("sk-_", "eyJ_", "eyJ-", "://pwd", "{.:cookie://", "x: -----BEGIN PRIVATE" + " KEY-----\n", "password='{a:"),
    *("password=a(", "password: a ", "password='${", "passphrase: it is ", "authorization: digest is "),
]


def spent(work: Callable[[], object]) -> float:
    """Processor time of this thread: others may be busy."""
    started = time.thread_time()
    work()
    return time.thread_time() - started


def test_a_long_value_of_digits_takes_linear_time() -> None:
    redactor = Redactor()
    texts = [f'password="{"1" * size}x"' for size in (40_000, 160_000)]

    seconds = [min(spent(lambda text=text: redactor.text(text)) for _ in range(3)) for text in texts]

    assert seconds[1] < 10 * seconds[0] + 0.005


@pytest.mark.parametrize("part", HOSTILE)
def test_the_time_grows_with_the_length_not_with_its_square(part: str) -> None:
    redactor = Redactor()
    texts = [part * (size // len(part)) for size in (40_000, 160_000)]

    seconds = [min(spent(lambda text=text: redactor.text(text)) for _ in range(3)) for text in texts]

    assert seconds[1] < 10 * seconds[0] + 0.005  # four times the length; its square would be sixteen times


def test_threads_share_a_redactor() -> None:
    redactor = Redactor()
    texts = [f"{index} {GITHUB} password=x{index}yz {index}_token" for index in range(2_000)]
    kept: dict[int, list[str]] = {}

    def work(number: int) -> None:
        kept[number] = [redactor.text(text) for text in texts]

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert all(GITHUB not in text for texts in kept.values() for text in texts)
    assert kept[0] == kept[1] == kept[2] == kept[3]
