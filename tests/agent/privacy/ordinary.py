"""Lines that hold no secret, of the many sorts that names, labels and payloads of a training are made of.

Half of the sorts are ordinary to a person and a trap to a redactor: tokens that are counted, keys of caches, digests,
code that passes a password on, prose about secrets.
"""

import base64
import hashlib
import random
import uuid
from collections.abc import Callable, Iterator

SEED = 7
LINES = 100_000


def _words(text: str) -> list[str]:
    return text.split()


NAMES = _words("""
    loss loss_per_token grad_norm learning_rate tokens_per_second max_new_tokens num_tokens time/token bos_token_id
    eval/accuracy reward/mean kl_divergence throughput/tokens_per_sec gpu_memory_allocated pad_token_id step_time_ms
    cache_key primary_key author tokenizer_path passes compass_bearing secretary_count keyboard_events per_token_loss
""")
MODULES = _words("model.layers.{}.attn.q_proj.weight model.embed_tokens.weight lm_head.bias blocks.{}.mlp.key_proj")
WORDS = _words("""
    the model reads a token and passes its key to attention while the secret of good training is patience basic ideas
    help every author who must authorize a change or reset a password before the cookie expires bearer of news
""")
HOSTS = _words("api.example.com storage.googleapis.com huggingface.co localhost:8080 10.0.0.7:6379 [::1]:8471")
KEYWORDS = _words("input output tensor batch hidden state prompt answer value config")


class Scribe:
    """Writes lines; the same ones for the same seed."""

    def __init__(self, seed: int = SEED) -> None:
        self.random = random.Random(seed)

    def one(self, choices: tuple[str, ...] | list[str]) -> str:
        """One of them."""
        return self.random.choice(choices)

    def number(self) -> str:
        """A number as logs write them."""
        drawn = self.random.random()
        return self.one([f"{drawn:.4f}", str(int(drawn * 100_000)), f"{drawn:.3e}"])

    def hex(self, length: int) -> str:
        """A digest, or its beginning."""
        return hashlib.sha256(str(self.random.random()).encode()).hexdigest()[:length]

    def uuid(self) -> str:
        """A UUID."""
        return str(uuid.UUID(int=self.random.getrandbits(128), version=4))

    def base64(self) -> str:
        """A digest in base64."""
        return base64.b64encode(self.random.randbytes(32)).decode()

    def words(self) -> str:
        """Some prose."""
        return " ".join(self.random.choices(WORDS, k=self.random.randrange(4, 16)))

    def path(self) -> str:
        """A path of a file."""
        return "/" + "/".join(self.random.choices(NAMES + KEYWORDS, k=4)) + f"/step-{self.random.randrange(9_999)}.pt"

    def module(self) -> str:
        """A module of a model."""
        return self.one(MODULES).format(self.random.randrange(96))


def _code(scribe: Scribe) -> str:
    name, other = scribe.one(KEYWORDS), scribe.one(KEYWORDS)
    return scribe.one(
        [
            f"    {name} = self.{other}({name}, dim=-1)",
            "    token = tokenizer.decode(ids[0])",
            "    token = next(stream)",
            f"def load({name}: str, token: str | None = None, password: Optional[str] = None) -> None:",
            "    client = Client(api_key=api_key, password=self.password, token=token)",
            '    api_key = os.environ["API_KEY"]',
            '    api_key = os.environ.get("API_KEY", None)',
            "    password = getpass.getpass()",
            "    secret: SecretStr = Field(default=...)",
            '    parser.add_argument("--token", type=str, default=None)',
            '    parser.add_argument("--api-key", help="key of the service")',
            f"    cache_key = hash(({name}, {other}))",
            f"    for key, value in sorted({name}.items(), key=lambda item: item[1]):",
            '    if token == "<pad>":',
            "    headers = {'Authorization': f'Bearer {token}'}",
            '    url = f"postgres://{user}:{password}@{host}/db"',
            "    auth = (user, password)",
            "    assert tokens.shape == (batch, length)",
            f"    raise ValueError(f'unknown key: {{key!r}} in {name}')",
            "    return F.scaled_dot_product_attention(query, key, value, attn_mask=mask)",
        ]
    )


def _metrics(scribe: Scribe) -> str:
    name, other = scribe.one(NAMES), scribe.one(NAMES)
    return scribe.one(
        [
            f"{name}={scribe.number()} {other}={scribe.number()}",
            f"{name}: {scribe.number()}",
            f'{{"{name}": {scribe.number()}, "{other}": {scribe.number()}}}',
            f"step {scribe.number()} | {name} {scribe.number()} | token: {scribe.random.randrange(50_000)}",
            f"wandb: {name} ▁▂▃▅▇ {scribe.number()}",
            f"{name}[rank={scribe.random.randrange(64)}] -> {scribe.number()}",
        ]
    )


def _log(scribe: Scribe) -> str:
    return scribe.one(
        [
            f"2026-11-30 12:00:{scribe.random.randrange(60):02} INFO trainer: saved {scribe.path()}",
            f"[rank{scribe.random.randrange(64)}]: {scribe.module()} grad norm {scribe.number()}",
            f"WARNING: token indices sequence length is longer than {scribe.number()}",
            "ERROR: authentication failed: token expired",
            "auth: ok, session established",
            f"GET /v1/tokens?page={scribe.random.randrange(99)} 200 {scribe.number()} ms",
            f'10.0.0.{scribe.random.randrange(255)} - - "POST /login HTTP/1.1" 401 17',
            "password: required, secret: missing, api_key: not set",
            f"NCCL INFO comm 0x{scribe.hex(12)} rank {scribe.random.randrange(64)} nranks 64 busId {scribe.hex(4)}",
            f"sampled token: {scribe.one(WORDS[:4])} logprob={scribe.number()}",
            f'{{"pad_token": "<pad>", "eos_token": "</s>", "token_type": "{scribe.one(KEYWORDS)}"}}',
            f'Traceback: File "{scribe.path()}.py", line {scribe.random.randrange(900)}, in {scribe.one(KEYWORDS)}',
        ]
    )


def _digest(scribe: Scribe) -> str:
    return scribe.one(
        [
            f"commit {scribe.hex(40)}",
            f"{scribe.hex(7)} {scribe.words()}",
            f"sha256:{scribe.hex(64)}",
            f'"integrity": "sha512-{scribe.base64()}"',
            f"span {scribe.hex(16)} of trace {scribe.hex(32)}",
            f"run-{scribe.uuid()}",
            f"request_id={scribe.uuid()} status=ok",
            f"etag: {scribe.base64()}",
            f"{scribe.hex(32)}  {scribe.path()}",
            f"image@sha256:{scribe.hex(64)}",
            f"checkpoint {scribe.base64()} verified",
        ]
    )


def _address(scribe: Scribe) -> str:
    host = scribe.one(HOSTS)
    return scribe.one(
        [
            f"https://{host}/models/{scribe.one(KEYWORDS)}?page={scribe.random.randrange(99)}&sort=name",
            f"git@github.com:team/{scribe.one(KEYWORDS)}.git",
            f"ssh://git@{host}/team/repo",
            f"s3://bucket{scribe.path()}",
            f"http://{host}/a/b@v{scribe.random.randrange(9)}",
            f"redis://{host}/0",
            f"docker pull {host}/team/image:{scribe.number()}",
            f"pip install git+https://{host}/team/pkg@{scribe.hex(8)}",
            f"mail to someone@{scribe.one(KEYWORDS)}.example.org, or see https://{host}:443/docs#key",
        ]
    )


def _command(scribe: Scribe) -> str:
    return scribe.one(
        [
            f"torchrun --nproc-per-node 8 train.py --lr {scribe.number()} --tokenizer-path {scribe.path()}",
            f"python generate.py --max-new-tokens {scribe.random.randrange(512)} --stop-token '</s>'",
            "docker run --rm -u 1000:1000 -p 8080:80 image",
            f"export CUDA_VISIBLE_DEVICES={scribe.random.randrange(8)} PWD={scribe.path()}",
            f"python -m tool --key-dim {scribe.random.randrange(512)} --pass-through --token-budget 4096",
            "pip freeze: torch==2.13.0 tokenizers==0.22.1 keyring==25.6.0 secretstorage==3.3.3",
            "rm -rf build --no-preserve-root=false --author someone",
            "usage: login [--token TOKEN] [--password PASSWORD]",
            "kubectl get secret registry -o name",
        ]
    )


def _text(scribe: Scribe) -> str:
    return scribe.one(
        [
            scribe.words(),
            f"{scribe.words().capitalize()}: {scribe.words()}.",
            f"- [ ] {scribe.words()}",
            f"Q: {scribe.words()}?",
            f"| {scribe.one(NAMES)} | {scribe.number()} | {scribe.words()} |",
            f"<p>{scribe.words()}</p>",
            f"{scribe.one(KEYWORDS)}_key, {scribe.one(KEYWORDS)}_token, {scribe.words()}",
            "The password must have eight characters; the API key is shown once.",
            "use sk-learn style estimators, task-specific heads and risk-adjusted returns",
            f"tensor([{', '.join(scribe.number() for _ in range(6))}], device='cuda:0')",
        ]
    )


SORTS: tuple[Callable[[Scribe], str], ...] = (_code, _metrics, _log, _digest, _address, _command, _text)


def ordinary(count: int = LINES, seed: int = SEED) -> Iterator[str]:
    """So many lines, of each sort the same number."""
    scribe = Scribe(seed)
    for number in range(count):
        yield SORTS[number % len(SORTS)](scribe)
