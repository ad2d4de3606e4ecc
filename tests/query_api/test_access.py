"""Who may ask: keys, their scopes and projects; a foreign project is answered as one that does not exist."""

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
import pytest_asyncio

from rankscope_proto.keys import EVERY_PROJECT, KeyFile, KeyRing, Scope
from rankscope_query_api.access import OPEN
from rankscope_query_api.app import create_app
from rankscope_query_api.clickhouse_store import ClickHouseStore
from rankscope_query_api.settings import Settings
from tests.query_api import story
from tests.query_api.asking import ROLLOUT, RUN, error_in

READ = frozenset({Scope.READ})
EVERY_ROUTE = [
    *("/api/v1/runs", RUN, f"{RUN}/metrics", f"{RUN}/metrics?name=loss", f"{RUN}/completeness", f"{RUN}/traces"),
    *(f"{RUN}/traces/{ROLLOUT}/spans", f"{RUN}/steps", f"{RUN}/steps/5/tree", f"{RUN}/steps/5/tree?rank=0"),
    *("/api/v1/traces?from=2026-11-01", f"{RUN}/traces/{ROLLOUT}", f"{RUN}/traces/{ROLLOUT}/export"),
    *(f"{RUN}/traces/export", f"{RUN}/traces/steps", f"{RUN}/traces/{ROLLOUT}/window?span={1:016x}"),
    f"{RUN}/steps/5/tree?by=node",
    *(f"{RUN}/captures", f"/api/v1/runs/{story.OTHER_RUN}/captures/{story.DIGEST}"),
    *(f"{RUN}/model", f"{RUN}/layer-profile", f"{RUN}/hits", f"{RUN}/rules", f"{RUN}/hang", f"{RUN}/provenance"),
    f"{RUN}/check",
    f"{RUN}/clocks",
    *(f"{RUN}/stragglers", f"{RUN}/collectives"),
    f"{RUN}/system",
    *(f"{RUN}/tensors", f"{RUN}/findings", "/api/v1/tql", "/api/v1/tql?with-run"),
    *("/api/v1/sql", "/api/v1/sql?with-run", "/api/v1/tql/complete", "/api/v1/tql/explain"),
]
NOBODYS = "nobodys"
"""A project without a row."""


@dataclass(frozen=True, slots=True)
class Service:
    """The service with keys on, in this process."""

    file: KeyFile
    api: httpx.AsyncClient

    def key(self, *projects: str, scopes: frozenset[Scope] = READ) -> str:
        """A new key of the service."""
        return self.file.create(projects, scopes)[0]

    async def ask(self, path: str, key: str | None, /, **query: str) -> httpx.Response:
        """The answer to a request for a path of `EVERY_ROUTE`."""
        headers = {} if key is None else {"authorization": f"Bearer {key}"}
        bare, _, given = path.partition("?")
        if bare == "/api/v1/tql":
            run = {"run": story.RUN} if given else {}
            body = {"query": "tensor.nonfinite_count >= 0 or rank >= 0", **run}
            return await self.api.post(bare, params=query, json=body, headers=headers)
        if bare in {"/api/v1/tql/complete", "/api/v1/tql/explain"}:
            body = {"query": 'span.name == "' + ('x"' if bare.endswith("explain") else "")}
            return await self.api.post(bare, params=query, json=body, headers=headers)
        if bare.endswith("/check"):
            return await self.api.post(bare, params=query, json={}, headers=headers)
        if bare == "/api/v1/sql":
            run = {"run": story.RUN} if given else {}
            body = {"query": "SELECT name, rank, step FROM spans ORDER BY start_ns, span_id, rank, name", **run}
            return await self.api.post(bare, params=query, json=body, headers=headers)
        parameters = dict(part.split("=") for part in given.split("&") if part) | query
        return await self.api.get(bare, params=parameters, headers=headers)


@pytest.fixture
def file(tmp_path: Path) -> KeyFile:
    return KeyFile(tmp_path / "keys.json")


@pytest_asyncio.fixture
async def service(store: ClickHouseStore, settings: Settings, tmp_path: Path, file: KeyFile) -> AsyncIterator[Service]:
    file.create(["first"], READ)
    app = create_app(store, settings, ring=KeyRing(tmp_path / "keys.json"))
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as api:
        yield Service(file, api)


def shown(answer: httpx.Response, project: str) -> tuple[int, Any]:
    """Status and text of an answer, without the name of the project that was asked for."""
    return answer.status_code, answer.text.replace(project, "PROJECT")


@pytest.mark.parametrize("path", EVERY_ROUTE)
@pytest.mark.parametrize(("own", "foreign"), [("default", "other"), ("other", "default")])
async def test_each_of_two_keys_sees_its_project_and_nothing_of_the_other(
    service: Service, path: str, own: str, foreign: str
) -> None:
    key = service.key(own)
    everywhere = service.key(EVERY_PROJECT)

    named, by_default = await service.ask(path, key, project=own), await service.ask(path, key)
    whole = await service.ask(path, everywhere, project=own)
    refused = await service.ask(path, key, project=foreign)
    unknown = await service.ask(path, everywhere, project=NOBODYS)

    assert named.text == by_default.text == whole.text
    assert named.status_code == whole.status_code
    assert shown(refused, foreign) == shown(unknown, NOBODYS)
    assert ("secret" in refused.text) is False
    assert ("secret" in named.text) is False or own == "other"


def test_the_matrix_asks_every_route_that_reads(store: ClickHouseStore, settings: Settings) -> None:
    def template(path: str) -> str:
        bare = path.partition("?")[0].replace(story.RUN, "{run}").replace(ROLLOUT, "{trace}")
        bare = bare.replace(story.OTHER_RUN, "{run}").replace(story.DIGEST, "{digest}")
        return bare.replace("/steps/5", "/steps/{step}")

    paths = create_app(store, settings).openapi()["paths"]
    reading = {path for path, methods in paths.items() if path.startswith("/api") and set(methods) != {"delete"}}

    assert reading == {template(path) for path in EVERY_ROUTE} | {"/api/v1/storage"}


async def test_two_keys_in_one_request_are_none(service: Service) -> None:
    valid, other = f"Bearer {service.key('default')}", "Bearer rsk_00000000_" + "x" * 43

    answers = [
        await service.api.get("/api/v1/runs", headers=[("authorization", one) for one in both])
        for both in ((valid, other), (other, valid), (valid, valid))
    ]

    assert [answer.status_code for answer in answers] == [401] * 3
    assert answers[0].headers["www-authenticate"].startswith("Bearer")


@pytest.mark.parametrize("query", ["project=other&project=default", "project=default&project=other"])
async def test_a_project_given_twice_must_be_the_keys_both_times(service: Service, query: str) -> None:
    headers = {"authorization": f"Bearer {service.key('default')}"}

    runs = await service.api.get(f"/api/v1/runs?{query}", headers=headers)

    assert runs.json()["items"] == []


@pytest.mark.parametrize("project", ["", "%2F", "DEFAULT", "default%20", "default%00"])
async def test_what_only_looks_like_the_keys_project_is_not(service: Service, project: str) -> None:
    headers = {"authorization": f"Bearer {service.key('default')}"}

    runs = await service.api.get(f"/api/v1/runs?project={project}", headers=headers)

    assert runs.json()["items"] == []


async def test_a_key_of_several_projects_must_name_the_one_it_means(service: Service) -> None:
    key = service.key("other", "third")

    assert (await service.ask("/api/v1/runs", key)).json()["items"] == []
    assert (await service.ask("/api/v1/runs", key, project="other")).json()["items"]


async def test_a_suggestion_names_no_run_of_a_foreign_project(service: Service) -> None:
    answer = await service.ask("/api/v1/runs/secret-rum", service.key("default"), project="other")

    assert "secret-run" not in error_in(answer, status=404)["hint"]


def none(service: Service) -> str | None:
    return None


def empty(service: Service) -> str | None:
    return ""


def made_up(service: Service) -> str | None:
    return "rsk_00000000_" + "a" * 43


def forged(service: Service) -> str | None:
    key = service.key("default")
    return key[:-1] + ("a" if key[-1] != "a" else "b")


def revoked(service: Service) -> str | None:
    key = service.key("default")
    service.file.revoke(key[4:12])
    return key


def expired(service: Service) -> str | None:
    return service.file.create(["default"], READ, lifetime_ns=0)[0]


@pytest.mark.parametrize("make", [none, empty, made_up, forged, revoked, expired])
@pytest.mark.parametrize("path", [*EVERY_ROUTE, "/api/v1/openapi.json", "/api/v1/storage", "/nowhere"])
async def test_without_a_valid_key_every_route_is_401(
    service: Service, path: str, make: Callable[[Service], str | None]
) -> None:
    key = make(service)

    answer = await service.ask(path, key)

    error = error_in(answer, status=401)
    assert answer.headers["www-authenticate"].startswith("Bearer")
    assert "RANKSCOPE_KEY" in error["hint"]
    assert not key or key not in answer.text


async def test_a_revoked_key_ends_at_once(service: Service) -> None:
    key = service.key("default")
    before = await service.ask("/api/v1/runs", key)

    service.file.revoke(key[4:12])

    assert before.status_code == 200
    assert (await service.ask("/api/v1/runs", key)).status_code == 401


@pytest.mark.parametrize("path", sorted(OPEN))
async def test_probes_need_no_key(service: Service, path: str) -> None:
    assert (await service.ask(path, None)).status_code == 200


async def test_head_needs_a_key_as_get_does(service: Service) -> None:
    key = {"authorization": f"Bearer {service.key('default')}"}

    assert (await service.api.head("/api/v1/runs")).status_code == 401
    assert (await service.api.head("/api/v1/runs", headers=key)).status_code == 200


async def test_a_key_to_send_with_may_not_read_nor_a_reader_delete(service: Service) -> None:
    sender = service.key("default", scopes=frozenset({Scope.INGEST}))
    reader = {"authorization": f"Bearer {service.key('default')}"}

    assert "'read'" in error_in(await service.ask("/api/v1/runs", sender), status=403)["message"]
    assert "'admin'" in error_in(await service.api.delete(RUN, headers=reader), status=403)["message"]


async def test_what_tells_of_all_projects_is_for_the_admin_of_all(service: Service) -> None:
    admin = frozenset({Scope.ADMIN})

    assert (await service.ask("/api/v1/storage", service.key("default"))).status_code == 403
    assert (await service.ask("/api/v1/storage", service.key("default", scopes=admin))).status_code == 403
    assert (await service.ask("/api/v1/storage", service.key(EVERY_PROJECT, scopes=admin))).status_code == 200


@pytest.mark.parametrize(("listen", "status"), [("127.0.0.1:8470", 200), ("10.0.0.1:8470", 401)])
async def test_metrics_need_a_key_beyond_loopback(
    store: ClickHouseStore, file: KeyFile, tmp_path: Path, listen: str, status: int
) -> None:
    file.create(["first"], READ)
    settings = Settings.from_environment({"RANKSCOPE_QUERY_LISTEN": listen})
    app = create_app(store, settings, ring=KeyRing(tmp_path / "keys.json"))
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost") as api:
        answer = await api.get("/metrics")

    assert answer.status_code == status


async def test_nothing_of_a_body_is_read_before_the_key_is_known(service: Service) -> None:
    taken: list[int] = []

    async def endless() -> AsyncIterator[bytes]:
        while True:
            taken.append(1)
            yield b"x" * 65_536

    answer = await service.api.post("/api/v1/tql", content=endless())

    assert answer.status_code == 401
    assert answer.headers["connection"] == "close"
    assert taken == []
