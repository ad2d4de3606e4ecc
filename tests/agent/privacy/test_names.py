"""Which names are names of secrets."""

import pytest

from rankscope.privacy import Redactor
from rankscope.privacy.names import NameKind, Names

SECRET = """
    api_key apiKey api-key API_KEY APIKey x-api-key X-API-Key openai_api_key apikey authorization Authorization
    proxy-authorization cookie set-cookie Set-Cookie session_cookie cookies password Password db_password PGPASSWORD
    dbPassword passwd passphrase secret client_secret clientSecret client_secret_value secrets token accessToken
    access_token HF_TOKEN hfToken GITHUB_TOKEN_2 github.token db/password env.API_TOKEN private_key privateKey
    aws_secret_access_key secretAccessKey auth basic_auth credentials bearer jwt api_key_prod password2 access_tokens
    user_password_hash secret_key SECRET_KEY
""".split()  # noqa: SIM905  # a list of words
ORDINARY = """
    loss_per_token pad_token bos_token_id eos_token max_new_token max_new_tokens tokens num_tokens tokenizer
    gen_ai.usage.input_tokens token_type token_count next_token prefix_token publicKeyToken key keys cache_key
    primary_key sort_key author authors authority secretary password_field_name passes forward_pass PWD OLDPWD pwd
    monkey keyboard cookie_banner_text tokenization auth0 model layers.3.attn.k_proj step rank secret_count
""".split()  # noqa: SIM905  # a list of words


@pytest.mark.parametrize("name", SECRET)
def test_a_name_of_a_secret_is_known_in_every_spelling(name: str) -> None:
    assert Redactor().is_secret(name)


@pytest.mark.parametrize("name", ORDINARY)
def test_a_name_that_only_sounds_like_one_is_none(name: str) -> None:
    assert not Redactor().is_secret(name)


def test_a_users_name_counts_whole_and_as_an_ending_in_every_spelling() -> None:
    redactor = Redactor(keys=["socialNumber", "pin"])

    assert all(map(redactor.is_secret, ["social_number", "SOCIAL-NUMBER", "patient.socialNumber", "card_pin", "PIN"]))
    assert not any(map(redactor.is_secret, ["number", "social", "pinned", "spin", "pin_count"]))


def test_a_users_name_counts_where_a_text_assigns_to_it_too() -> None:
    assert Redactor(keys=["badge"]).text("door badge: 77-1234, open") == "door badge: [REDACTED], open"
    assert Redactor().text("door badge: 77-1234, open") == "door badge: 77-1234, open"


def test_token_alone_is_vague_and_an_issuers_is_not() -> None:
    kind = Names().kind

    assert (kind("token"), kind("access_token"), kind("pad_token")) == (NameKind.VAGUE, NameKind.SECRET, None)


def test_a_very_long_name_is_judged_by_its_end() -> None:
    assert Redactor().is_secret("x" * 10_000 + "_password")
    assert not Redactor().is_secret("password_" + "x" * 10_000)


def test_names_without_letters_are_none() -> None:
    assert not any(map(Redactor().is_secret, ["", "_", "***", "123", "п", "🔑"]))
