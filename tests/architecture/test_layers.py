"""The import contracts of pyproject.toml hold, and each one reports an import that breaks it."""

from __future__ import annotations

import re
from copy import deepcopy
from typing import Any, Final

import grimp
import pytest
from importlinter import Contract
from importlinter.api import read_configuration
from importlinter.contracts.acyclic_siblings import AcyclicSiblingsContract
from importlinter.contracts.forbidden import ForbiddenContract
from importlinter.contracts.layers import LayersContract

from dev import ROOT
from tests.architecture.rules import PACKAGES

CONFIGURATION: Final = read_configuration(str(ROOT / "pyproject.toml"))
CONTRACTS: Final[dict[str, dict[str, Any]]] = {
    options["name"]: options for options in CONFIGURATION["contracts_options"]
}
TYPES: Final[dict[str, type[Contract]]] = {
    "acyclic_siblings": AcyclicSiblingsContract,
    "forbidden": ForbiddenContract,
    "layers": LayersContract,
}
CYCLES: Final = "no cycles between siblings, anywhere"

VIOLATIONS: Final = [
    ("app and pipeline stand side by side", "tidegate.conflation.journal", "tidegate.app.gateway"),
    ("app and pipeline stand side by side", "tidegate.keys.path", "tidegate.conflation.journal"),
    ("app and pipeline stand side by side", "tidegate.app.gateway", "tidegate.pipeline.intervals"),
    ("the pipeline reaches the gateway", "tidegate.pipeline.intervals", "tidegate.app.gateway"),
    ("clients know nothing of the server", "tidegate.clients.gateway", "tidegate.keys.path"),
    ("engine and keys know no client", "tidegate.conflation.journal", "tidegate.clients.gateway"),
    ("in app, only the command line", "tidegate.app.gateway", "tidegate.clients.gateway"),
    ("pyspark_tidegate is a door", "pyspark_tidegate", "tidegate.app.gateway"),
    ("only Spark opens that door", "tidegate.app.gateway", "pyspark_tidegate"),
    ("engine and keys: no I/O, no clock", "tidegate.conflation.journal", "time"),
    ("engine and keys: no I/O, no clock", "tidegate.keys.path", "redis"),
    ("Spark stays in the pipeline", "tidegate.app.gateway", "pyspark"),
    ("the web framework stays in app", "tidegate.clients.gateway", "uvicorn"),
    ("in app, Redis is known to the bus", "tidegate.app.gateway", "redis"),
    ("in app, HTTP is on top", "tidegate.app.stores.store", "tidegate.app.http.problems"),
    ("in app, HTTP is on top", "tidegate.app.gateway", "tidegate.app.http.scope"),
    ("in app, HTTP is on top", "tidegate.app.streams.session", "tidegate.app.topics.registry"),
    ("below app.http nothing knows", "tidegate.app.streams.session", "starlette"),
    ("below app.http nothing knows", "tidegate.app.refusals", "fastapi"),
    ("in app, HTTP is on top", "tidegate.app.embed.stream_response", "tidegate.app.http.scope"),
    ("an embedded topic needs", "tidegate.app.embed.stream_response", "fastapi"),
    ("an embedded topic needs", "tidegate.app.streams.driver", "tidegate.app.settings.settings"),
]
"""The start of a contract's name, a module, and a module that the first one must not import."""


@pytest.fixture(scope="module")
def graph() -> grimp.ImportGraph:
    packages = CONFIGURATION["session_options"]["root_packages"]
    return grimp.build_graph(*packages, include_external_packages=True, cache_dir=None)


def is_kept(name: str, graph: grimp.ImportGraph) -> bool:
    """Check one contract against a copy of the graph, which a check may change."""
    options = CONTRACTS[name]
    contract = TYPES[options["type"]](name, CONFIGURATION["session_options"], options)
    return contract.check(deepcopy(graph), verbose=False).kept


@pytest.mark.parametrize(
    ("start", "importer", "imported"),
    [pytest.param(*each, id=f"{each[1]} -> {each[2]}") for each in VIOLATIONS],
)
def test_a_contract_reports_an_import_that_breaks_it(
    graph: grimp.ImportGraph, start: str, importer: str, imported: str
) -> None:
    [name] = [each for each in CONTRACTS if each.startswith(start)]
    assert importer in graph.modules
    broken = deepcopy(graph)
    broken.add_import(importer=importer, imported=imported)
    assert not is_kept(name, broken)


@pytest.mark.parametrize("package", CONTRACTS[CYCLES]["ancestors"])
def test_a_cycle_between_modules_of_a_package_is_reported(
    graph: grimp.ImportGraph, package: str
) -> None:
    broken = deepcopy(graph)
    one, two = f"{package}.planted_one", f"{package}.planted_two"
    broken.add_import(importer=one, imported=two)
    assert is_kept(CYCLES, broken)
    broken.add_import(importer=two, imported=one)
    assert not is_kept(CYCLES, broken)


def test_every_contract_has_a_violation() -> None:
    starts = tuple(start for start, _, _ in VIOLATIONS)
    assert [name for name in CONTRACTS if not name.startswith(starts)] == [CYCLES]


@pytest.mark.parametrize("name", CONTRACTS)
def test_the_product_keeps_a_contract(graph: grimp.ImportGraph, name: str) -> None:
    assert is_kept(name, graph)


def test_every_package_has_contracts() -> None:
    linked = {path.name for path in (ROOT / "tidegate").iterdir() if path.is_symlink()}
    roots = re.findall(r"[\w.]+", str(CONFIGURATION["session_options"]["root_packages"]))
    assert roots == ["tidegate", "pyspark_tidegate"]
    assert linked | {"pyspark_tidegate"} == set(PACKAGES)
