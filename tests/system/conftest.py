"""The site of the fault suite: one for the test run, healed before each test, with a run for each."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.system.oracles import HEAL_S, PATIENCE_S
from tests.system.site import Site
from tests.system.trial import Trial


@pytest.fixture(scope="package")
def running_site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """The one site of the test run; use `site`."""
    made = Site(tmp_path_factory.mktemp("site"))
    try:
        made.add_tiers()
        yield made
    finally:
        made.stop()


@pytest.fixture
def site(running_site: Site) -> Site:
    """A writer, a gateway, an agent, a broker and a store, all well."""
    running_site.heal()
    return running_site


@pytest.fixture
def trial(site: Site, request: pytest.FixtureRequest) -> Iterator[Trial]:
    """A run in the site; its sources are ended after the test, and the site is well again."""
    name = str(request.node.name).split("[")[0].removeprefix("test_")[:40]
    made = Trial(site, name, heal_s=HEAL_S if request.node.get_closest_marker("slow") else PATIENCE_S)
    yield made
    made.stop()
    site.heal()


@pytest.fixture
def own_site(tmp_path: Path) -> Iterator[Site]:
    """A site without tiers, for a test that starts them its own way."""
    made = Site(tmp_path / "site")
    yield made
    made.stop()


@pytest.fixture
def tell(capsys: pytest.CaptureFixture[str]) -> Callable[[str], None]:
    """Says a line whether or not the test fails: seeds and figures."""

    def say(line: str) -> None:
        with capsys.disabled():
            sys.stdout.write(f"\n{line}\n")

    return say
