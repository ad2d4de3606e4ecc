"""Secrets that never were any: made from parts at run time, of many kinds, in the places secrets turn up in."""

import base64
import json
import random
import string
from collections.abc import Callable, Iterator
from dataclasses import dataclass

SEED = 20_260_101
LOWER, UPPER, DIGITS = string.ascii_lowercase, string.ascii_uppercase, string.digits
ALNUM = LOWER + UPPER + DIGITS
URLSAFE = ALNUM + "-_"
BASE64 = ALNUM + "+/"
HEX = DIGITS + "abcdef"


@dataclass(frozen=True, slots=True)
class Planted:
    """A text with one secret in it.

    Attributes:
        kind: Which kind of secret.
        text: What a span may be given.
        secret: What must not be left of it.
    """

    kind: str
    text: str
    secret: str


class Maker:
    """Makes secrets; the same ones for the same seed."""

    def __init__(self, seed: int = SEED) -> None:
        self._random = random.Random(seed)

    def of(self, alphabet: str, length: int) -> str:
        """Random characters, with a digit and a letter among them."""
        drawn = "".join(self._random.choices(alphabet, k=length - 2))
        letters = [letter for letter in alphabet if letter.isalpha()]
        return drawn + self._random.choice(letters) + self._random.choice(DIGITS)

    def one(self, *choices: str) -> str:
        """One of them."""
        return self._random.choice(choices)


def _encoded(value: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")


def _jwt(maker: Maker) -> str:
    claims = {"sub": maker.of(DIGITS + LOWER, 8), "iat": 1_700_000_000}
    return ".".join((_encoded({"alg": "HS256", "typ": "JWT"}), _encoded(claims), maker.of(URLSAFE, 43)))


def _private_key(maker: Maker) -> str:
    label = maker.one("RSA ", "EC ", "OPENSSH ", "", "ENCRYPTED ") + "PRIVATE" + " KEY"
    body = "\n".join(maker.of(BASE64, 64) for _ in range(4))
    dashes = "-" * 5
    return f"{dashes}BEGIN {label}{dashes}\n{body}\n{dashes}END {label}{dashes}"


SHAPED: dict[str, Callable[[Maker], str]] = {
    "jwt": _jwt,
    "aws access key": lambda maker: maker.one("AK", "AS") + "IA" + maker.of(UPPER + DIGITS, 16),
    "own key": lambda maker: "rs" + "k_" + maker.of(HEX, 8) + "_" + maker.of(URLSAFE, 43),
    "instantml key": lambda maker: "instant" + "ml_" + maker.of(ALNUM, 24),
    "github token": lambda maker: maker.one("ghp", "gho", "ghu", "ghs", "ghr") + "_" + maker.of(ALNUM, 36),
    "github fine-grained": lambda maker: "github" + "_pat_" + maker.of(ALNUM, 22) + "_" + maker.of(ALNUM, 59),
    "gitlab token": lambda maker: "gl" + "pat-" + maker.of(URLSAFE, 20),
    "model api key": lambda maker: "s" + "k-" + maker.one("", "proj-", "ant-api03-", "or-v1-") + maker.of(ALNUM, 40),
    "hugging face token": lambda maker: "h" + "f_" + maker.of(ALNUM, 34),
    "slack token": lambda maker: (
        maker.one("xoxb", "xoxp", "xapp") + f"-{maker.of(DIGITS + 'a', 12)}-" + maker.of(ALNUM, 24)
    ),
    "google api key": lambda maker: "AI" + "za" + maker.of(URLSAFE, 35),
    "google client secret": lambda maker: "GOC" + "SPX-" + maker.of(URLSAFE, 28),
    "google access token": lambda maker: "ya" + "29." + maker.of(URLSAFE, 60),
    "stripe key": lambda maker: maker.one("sk", "pk", "rk") + maker.one("_live_", "_test_") + maker.of(ALNUM, 24),
    "webhook secret": lambda maker: "wh" + "sec_" + maker.of(ALNUM, 32),
    "npm token": lambda maker: "np" + "m_" + maker.of(ALNUM, 36),
    "groq key": lambda maker: "gs" + "k_" + maker.of(ALNUM, 52),
    "grafana token": lambda maker: "gl" + "sa_" + maker.of(ALNUM, 32) + "_" + maker.of(HEX, 8),
    "sentry token": lambda maker: "sn" + "trys_" + _encoded({"org": maker.of(LOWER, 8)}) + "_" + maker.of(BASE64, 43),
    "figma token": lambda maker: "fi" + "gd_" + maker.of(URLSAFE, 40),
    "pypi token": lambda maker: "py" + "pi-" + maker.of(URLSAFE, 80),
    "private key": _private_key,
}
"""Known by their look, wherever they stand."""

ANYWHERE = (
    "{}",
    "the client was made with {} and answered",
    "rejected {}; code=401, retrying in 2 s",
    "key: '{}'",
    '{{"value":"{}","n":3}}',
    "https://api.example.com/v1/models?k={}&page=2",
    "[{}]",
    "Call(args=('{}',), kwargs={{}})",
    "first line\nthe second holds {}\nthird",
    "step 12\\n{}\\nloss 0.5",
    "<value>{}</value>",
    "prompt: use {}, then report what the tool said.",
    "2026-11-30T12:00:00Z ERROR worker-3 upload failed ({}) after 3 tries",
    "set X={}; python train.py",
)


def _password(maker: Maker) -> str:
    return maker.one("Tr0ub4dor", "hunter", "S3cr3t!", "pa55-", "q9$") + maker.of(ALNUM + "!#%+", 7)


NAMED: dict[str, tuple[Callable[[Maker], str], tuple[str, ...]]] = {
    "bearer": (
        lambda maker: maker.of(URLSAFE, 32),
        (
            "Authorization: Bearer {}",
            "authorization=bearer {}",
            "curl -H 'Authorization: Bearer {}' https://api.example.com/v1",
            "headers={{'Authorization': 'Bearer {}'}}",
            'gave up: 401 for "Bearer {}" at /v1/chat',
        ),
    ),
    "basic auth": (
        lambda maker: base64.b64encode(f"user:{maker.of(ALNUM, 14)}".encode()).decode(),
        (
            "Authorization: Basic {}",
            "sent Basic {} to the proxy",
            '{{"Proxy-Authorization": "Basic {}"}}',
        ),
    ),
    "address with a password": (
        lambda maker: maker.of(ALNUM, 16),
        (
            "postgres://trainer:{}@db.internal:5432/runs",
            "redis://:{}@cache:6379/0 did not answer",
            "mongodb+srv://app:{}@cluster0.example.net/?retryWrites=true",
            "git clone https://oauth2:{}@gitlab.example.com/team/repo.git",
            "url='amqp://guest:{}@mq/%2f'",
            "https://{}ab@github.com/team/repo.git",
        ),
    ),
    "password": (
        _password,
        (
            "password={}",
            "DB_PASSWORD={}",
            "export PGPASSWORD={}",
            'connect(host="db", password="{}")',
            "password: {}",
            '{{"user":"me","password":"{}","port":5432}}',
            "Server=db;Uid=sa;Pwd={};Database=x",
            "mysql --host db --password {} --batch",
            "<password>{}</password>",
            "passwd => '{}',",
        ),
    ),
    "api key": (
        lambda maker: maker.of(HEX, 40),
        (
            "WANDB_API_KEY={}",
            "api_key: {}",
            "x-api-key: {}",
            'os.environ["OPENAI_API_KEY"] = "{}"',
            "train.py --api-key {} --lr 0.1",
            "train.py --wandb-api-key={} x",
            "GET /v1/search?api_key={}&q=loss",
            '{{\\"apiKey\\": \\"{}\\"}}',
            "api key = {}",
            'api_key: str = "{}"',
        ),
    ),
    "access token": (
        lambda maker: maker.of(URLSAFE, 40),
        (
            "HF_TOKEN={}",
            "accessToken: '{}'",
            "refresh_token={}&grant_type=refresh_token",
            "token={}",
            '{{"csrf_token": "{}"}}',
            "--auth-token {}",
        ),
    ),
    "aws secret key": (
        lambda maker: maker.of(ALNUM + "+/", 40),
        (
            "AWS_SECRET_ACCESS_KEY={}",
            "aws_secret_access_key = {}",
            '"SecretAccessKey": "{}"',
            "aws configure set aws_secret_access_key {}",
        ),
    ),
    "client secret": (
        lambda maker: maker.of(ALNUM, 24),
        (
            "client_secret={}",
            "CLIENT_SECRET_VALUE: {}",
            'clientSecret="{}"',
            "signing-key: {}",
            "private_key={}",
            "credentials={}",
        ),
    ),
    "cookie": (
        lambda maker: maker.of(ALNUM, 32),
        (
            "Cookie: session={}; theme=dark",
            "Set-Cookie: sid={}; Path=/; HttpOnly",
            '"cookie": "csrftoken=x1; sessionid={}"',
        ),
    ),
    "command line user": (
        lambda maker: maker.of(ALNUM, 12),
        ("curl -u trainer:{} https://example.com", "curl -s --user 'me:{}' https://example.com/x"),
    ),
    "slack webhook": (
        lambda maker: maker.of(ALNUM, 24),
        ("https://hooks.slack.com/" + "services/T0AB12CD3/B0EF45GH6/{}",),
    ),
}
"""Known by the name before them."""


def planted(seed: int = SEED) -> Iterator[Planted]:
    """Every kind in every place of its own."""
    maker = Maker(seed)
    for kind, make in SHAPED.items():
        for place in ANYWHERE:
            secret = make(maker)
            yield Planted(kind, place.format(secret), secret)
    for kind, (make, places) in NAMED.items():
        for place in places:
            secret = make(maker)
            yield Planted(kind, place.format(secret), secret)
