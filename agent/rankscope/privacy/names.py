"""Which names are names of secrets: the same question for a key of a mapping, an option and an assignment in a text.

A name is normalised first (`apiKey`, `api-key` and `API_KEY` are one name), a qualifier at its end is put aside
(`client_secret_value`, `api_key_2`), and what is left is compared whole and by its end.

Promises: answers depend on the name alone, are kept for names that come again, and cost a look-up then.
"""

import re
from collections.abc import Sequence
from enum import Enum, unique
from functools import lru_cache

LONGEST = 128
"""Characters of a name that are looked at, from its end: that is where a name says what it is."""

_KEPT = 8_192
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_NOT_WORD = re.compile(r"[^a-z0-9]+")


def words(text: str) -> frozenset[str]:
    """The words of a text."""
    return frozenset(text.split())


@unique
class NameKind(Enum):
    """What kind of secret a name announces: how sure a value must look before it is replaced in a text."""

    SECRET = "secret"  # noqa: S105  # a kind, not one
    PASSWORD = "password"  # noqa: S105
    HEADER = "header"
    """A whole header value, words and all: `Authorization`, `Cookie`."""

    PHRASE = "phrase"
    """Words to the end of the line."""

    VAGUE = "vague"
    """`token`: a secret to a client, a piece of text to a language model."""


_HEADERS = ("authorization", "proxy_authorization", "cookie", "cookies", "set_cookie")
_PASSWORDS = ("password", "passwd", "pass_word", "password_hash", "passwd_hash")
_PHRASES = ("passphrase", "pass_phrase", "seed_phrase", "recovery_phrase", "mnemonic_phrase")
_SECRETS = words("""
    access_key access_token account_key admin_key anthropic_key api_key api_secret api_token apikey apitoken app_key
    application_key auth auth_key authkey authtoken aws_key azure_key bearer client_key cohere_key connection_key
    consumer_key credential credentials creds db_pass deploy_key encryption_key gcp_key gemini_key google_key groq_key
    hf_key hmac_key jwt license_key mail_pass master_key mistral_key mysql_pass openai_key otp pg_pass priv_key
    private_key privatekey privkey pwd redis_pass root_pass rsa_key secret secret_key secretkey secrets service_key
    service_role_key session_key shared_key signing_key smtp_pass ssh_key stripe_key subscription_key
    totp user_pass wandb_key webhook_key x_api_key accesskey accesstoken clientsecret refreshtoken bearertoken
    sessiontoken admin_pass
""")
_PLURALS = {
    *(f"{name}s" for name in (*_PASSWORDS, "access_key", "access_token", "api_key", "api_token", "private_key")),
    "auth_tokens",
    "bearer_tokens",
    "refresh_tokens",
}

_TOKEN_OWNERS = words("""
    access account admin anthropic api app auth aws azure bearer bot build ci client cloudflare csrf db deploy device
    discord docker gcp git github gitlab google hf hub huggingface id identity invite jira jwt login npm oauth openai
    personal private push pypi refresh registration registry reset runner sas secret security sentry service session
    slack sso telegram upload user vault verification wandb webhook xsrf
""")
"""Before `token`, what makes it a secret beyond doubt."""

_VOCABULARY = words("""
    added additional assistant audio begin bos cls decoded decoder draft end eod eos eot fim first forced gen generated
    image key last mask max min new next num pad per predicted prefix prev previous prompt reserved sampled sep special
    start stop suffix system target think tool top unk video vision
""")
"""Before `token`, what makes it a word of a tokenizer's vocabulary or a count."""

_QUALIFIERS = words("""
    b64 base64 current default dev header hex main new old plain plaintext prev previous primary prod production raw
    secondary staging str string test text v1 v2 val value
""")

ENDINGS = {
    **dict.fromkeys(_SECRETS, NameKind.SECRET),
    **dict.fromkeys(_PLURALS, NameKind.SECRET),
    **dict.fromkeys(_PASSWORDS, NameKind.PASSWORD),
    **dict.fromkeys(_PHRASES, NameKind.PHRASE),
    **dict.fromkeys(_HEADERS, NameKind.HEADER),
}
"""Names of secrets and their kinds: a name is one where it is one of these or ends with `_` and one of them."""

_ENDING = re.compile(rf"(?:^|_)({'|'.join(sorted(ENDINGS, key=len, reverse=True))})$")
_COMPOUND = re.compile(r"(?:password|passwd)$")
"""`PGPASSWORD`, `dbpassword`: one word that ends so."""

_WORKING_FOLDER = frozenset(("pwd", "old_pwd", "oldpwd"))


def normal(name: str) -> str:
    """The name as it is compared: lower case, one underscore between its words."""
    return _NOT_WORD.sub("_", _CAMEL.sub("_", name[-LONGEST:]).lower()).strip("_")


class Names:
    """Knows the names of secrets.

    Args:
        extra: More of them; each counts whole and as the end of a name.
    """

    def __init__(self, extra: Sequence[str] = ()) -> None:
        self.extra: tuple[str, ...] = tuple(filter(None, map(normal, extra)))
        self.kind = lru_cache(_KEPT)(self._kind)
        """Of a name: its kind; None where it is no secret's."""

    def _kind(self, name: str) -> NameKind | None:
        whole = normal(name)
        if any(whole == own or whole.endswith(f"_{own}") for own in self.extra):
            return NameKind.SECRET
        kind = _known(whole)
        if kind is not None or whole in _WORKING_FOLDER:
            return kind
        kept = _unqualified(whole)
        found = _known(kept) if kept != whole else None
        return None if found is NameKind.VAGUE else found


def _unqualified(name: str) -> str:
    """The name without the qualifiers at its end."""
    head, _, last = name.rpartition("_")
    while head and (last in _QUALIFIERS or last.isdigit()):
        name = head
        head, _, last = name.rpartition("_")
    return name if name == "auth0" else name.rstrip("0123456789")


def _known(name: str) -> NameKind | None:
    if name.endswith("token"):
        return _token_kind(name)
    if name in _WORKING_FOLDER:
        return None
    found = _ENDING.search(name)
    if found:
        return ENDINGS[found[1]]
    return NameKind.PASSWORD if _COMPOUND.search(name) else None


def _token_kind(name: str) -> NameKind | None:
    if name in ENDINGS:
        return ENDINGS[name]
    head, _, last = name.rpartition("_")
    if last != "token":
        return NameKind.SECRET if last.removesuffix("token") in _TOKEN_OWNERS else None
    owner = head.rpartition("_")[2]
    if owner in _VOCABULARY:
        return None
    return NameKind.SECRET if owner in _TOKEN_OWNERS else NameKind.VAGUE
