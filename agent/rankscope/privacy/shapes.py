"""Secrets that are known by their look: tokens of known issuers, private keys, credentials in an address.

Promises: a shape tells where in a text its secret begins and ends. What may turn out to be none is looked at for a
bounded length only: a text that is nothing but beginnings of secrets takes linear time too.
"""

import base64
import re
from collections.abc import Callable
from dataclasses import dataclass

Extent = tuple[int, int]
"""Where a secret lies in a text, end exclusive."""

Finder = Callable[[str, int], Extent | None]
"""Given a text and where a mark of the shape begins: where the secret lies, if there is one."""

_ALONE = r"(?:(?<![A-Za-z0-9])|(?<=\\[nrt])|(?<=%[0-9A-Fa-f]{2}))"
"""Before a token: no letter or digit, but for the end of an escaped line or character."""


@dataclass(frozen=True, slots=True)
class Shape:
    """A pattern that begins where its mark begins; its first group is the secret, without one the whole match."""

    pattern: re.Pattern[str]
    is_one: Callable[[str], bool] | None = None

    def __call__(self, text: str, start: int) -> Extent | None:
        """Where the secret lies, if the text has one here."""
        found = self.pattern.match(text, start)
        if found is None:
            return None
        begin, end = found.span(self.pattern.groups and 1)
        if self.is_one is not None and not self.is_one(text[begin:end]):
            return None
        return begin, end


def _token(pattern: str) -> Shape:
    return Shape(re.compile(_ALONE + pattern))


def _is_pair(encoded: str) -> bool:
    """Whether this is the base64 of `user:password`: "basic configuration" is not."""
    try:
        plain = base64.b64decode(encoded + "=" * (-len(encoded) % 4), validate=True).decode()
    except ValueError:
        return False
    return ":" in plain and plain.isprintable()


_BEARER = re.compile(r"bearer(?:\s|\\u0020|%20|[:=]){1,4}[\"']?(?P<token>[\w.~+/=-]{8,})", re.IGNORECASE)
_PROSE = re.compile(
    r"(?:auth(?:entication|ori[sz]ation)?|certificates?|credentials?|instruments?|schemes?|securit(?:y|ies)|shares?|"
    r"standard|tokens?)[.,;:]?",
    re.IGNORECASE,
)
_WORD = re.compile(r"[a-z]{1,15}\.?")
_PROSE_AFTER = re.compile(r":?\s[a-z]+\b(?!\s*[=:])")


def bearer(text: str, start: int) -> Extent | None:
    """The token after `Bearer`; "the bearer attends" has none."""
    found = _BEARER.match(text, start)
    if found is None or _PROSE.fullmatch(found["token"]):
        return None
    is_word = _WORD.fullmatch(found["token"]) is not None
    begins = text[start] == "b" or text[max(0, start - 2) : start].strip(" \n-*>") in ("", ".", "?", "!", ":")
    is_prose = is_word and begins and (text[start] == "b" or _PROSE_AFTER.match(text, found.end()) is not None)
    return None if is_prose else found.span("token")


def _is_shown(password: str) -> bool:
    """Whether the address shows where a password goes."""
    return password[0] in "${<[" or password.startswith(("%(", "%s")) or not password.strip("*x")


def _is_password(password: str) -> bool:
    return not _is_shown(password)


def _is_user_token(user: str) -> bool:
    """Whether the user of an address without a password is a token: `git@` is not."""
    return len(user) >= _USER_TOKEN and any(map(str.isdigit, user)) and not _is_shown(user)


_USER_TOKEN = 16

SK = _token(
    r"(?<!-)sk-(?!learn|toggleable|estimator|container|parallel|text-repr)(?=[\w-]{0,64}?(?:\d|[A-Za-z]{10}))[\w-]{8,}"
)
GITHUB = _token(r"gh[pousr]_[A-Za-z0-9_]{16,}")
GITHUB_PAT = _token(r"github_pat_\w{16,}")
OWN = _token(r"rsk_[0-9a-f]{8}_[\w-]{6,}")
INSTANTML = _token(r"instantml_[\w-]{6,}")
HUGGING_FACE = _token(r"hf_[A-Za-z0-9]{16,}")
STRIPE = _token(r"[spr]k_(?:live|test)_[A-Za-z0-9]{8,}")
WEBHOOK = _token(r"whsec_[\w+/=-]{8,}")
ALNUM_AFTER_UNDERSCORE = _token(r"(?:gsk|npm)_[A-Za-z0-9_]{20,}")
URLSAFE_AFTER_UNDERSCORE = _token(r"(?:glsa|figd)_[\w-]{20,}")
SENTRY = _token(r"sntrys_[\w+/=-]{20,}")
LANGSMITH = _token(r"lsv2_[a-z]{2}_[0-9a-f]{16,}\w*")
SLACK = _token(r"xox[a-z]-[\w-]{10,}")
SLACK_APP = _token(r"xapp-[\w-]{10,}")
GITLAB = _token(r"gl(?:pat|ptt|cbt|imt)-[\w-]{16,}")
PYPI = _token(r"pypi-[\w-]{16,}")
NVIDIA = _token(r"nvapi-[\w-]{16,}")
GOOGLE = _token(r"AIza[\w-]{30,}")
GOOGLE_CLIENT = _token(r"GOCSPX-[\w-]{16,}")
GOOGLE_ACCESS = _token(r"ya29\.[\w-]{16,}")
AWS = _token(r"(?:AKIA|ASIA)[A-Z0-9]{12,}")
JWT = _token(r"eyJ[\w-]{6,1024}+\.[\w-]{4,}(?:\.[\w-]*)*")
HOOK_ADDRESS = Shape(re.compile(r"hooks\.slack\.com/(?:services|workflows|triggers)/([\w/-]{12,})"))
DISCORD_ADDRESS = Shape(re.compile(r"webhooks/(\d{12,}/[\w-]{16,})"))
BASIC = Shape(re.compile(r"(?i)basic\s{1,4}([A-Za-z0-9+/]{8,}={0,2})"), _is_pair)
CURL_USER = Shape(re.compile(r"(?:-u ?|--user[ =])[\"']?[^\s:\"']+:(?!\d+(?:\s|$))([^\s\"']{3,})"), _is_password)

_PASSWORD = Shape(re.compile(r"://[^\s/?#\"'<>@:\[]*:([^\s/?#\"'<>]+)@"), _is_password)
_RAW_PASSWORD = Shape(
    re.compile(r"://[^\s/?#\"'<>@:\[]*:(?!\d+[/?#])(?!/)([^\s\"'<>@]+)@(?=[\w.-]+(?::\d+)?(?:[/?\s\"',;]|$))"),
    _is_password,
)
"""A password that holds what an address should encode."""

_USER = Shape(re.compile(r"://([^\s/?#\"'<>@:\[]+)@"), _is_user_token)


def userinfo(text: str, start: int) -> Extent | None:
    """The password of an address, or its user where that is a token."""
    return _PASSWORD(text, start) or _RAW_PASSWORD(text, start) or _USER(text, start)


_CURL_REACH = 200


def curl_user(text: str, start: int) -> Extent | None:
    """The password of `curl -u user:password`; `docker run -u 1000:1000` has none."""
    return CURL_USER(text, start) if "curl" in text[max(0, start - _CURL_REACH) : start] else None


PRIVATE_KEY = Shape(
    re.compile(
        r"-----BEGIN [A-Z0-9 ]{0,24}PRIVATE KEY(?: BLOCK)?-----"
        r"(?=(?:\s|\\[nr]|[\w-]{1,40}+: [^\n\\]{0,200}+){0,24}+[A-Za-z0-9+/=]{8})"
        r"(?:(?!-----)[\s\S])*+(?:-----END [A-Z0-9 ]{0,24}PRIVATE KEY(?: BLOCK)?-----)?"
    )
)
"""With its first and last line, or to the end of the text where that comes first."""
