"""The base alone is the client and the command line; each extra brings what its part imports."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, packages_distributions
from importlib.util import find_spec
from types import SimpleNamespace

import pytest

from dev import ROOT
from tests.packaging.dependencies import EXTRAS, declared, installed_with, modules
from tests.support.commands import Ended, environment
from tests.support.deadlines import HANGS_S
from tidegate.app.cli import installation
from tidegate.app.cli.installation import EXTRA_MODULES, install_command
from tidegate.app.cli.main import main

LACKING = """
import importlib, json, sys
from importlib.machinery import PathFinder
lacking, names = map(json.loads, sys.argv[1:3])
class Lacking(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        if name.partition(".")[0] in lacking:
            return None
        return super().find_spec(name, path, target)
sys.meta_path[sys.meta_path.index(PathFinder)] = Lacking
sys.argv[1:] = sys.argv[3:]
"""
COMMAND = "from tidegate.app.cli.main import main; sys.exit(main())"
# These are imported only after the verb has asked for its extra.
BEYOND_THE_BASE = (
    "app.cli.check",
    "app.cli.demo.feeds",
    "app.cli.demo.show",
    "app.cli.demo.spark",
    "app.cli.settings",
    "clients.live.notebook",
)
# Each has an extra, whose library it imports.
SOURCES = (
    "pipeline.forward.sinks.kafka",
    "pipeline.forward.sinks.mqtt",
    "pipeline.forward.sinks.nats",
    "pipeline.ingest.avro",
    "pipeline.ingest.protobuf",
    "pipeline.ingest.sources.kafka",
    "pipeline.ingest.sources.mqtt",
    "pipeline.ingest.sources.nats",
    "pipeline.ingest.sources.postgres",
    "pipeline.ingest.sources.rabbitmq",
    "pipeline.ingest.sources.sparkplug",
    "pipeline.ingest.sources.websocket",
    "pipeline.kafka_cluster",
    "pipeline.mqtt_broker",
    "pipeline.nats_server",
)
IMPORT = "list(map(importlib.import_module, names))"

BESIDE = {"mpl_toolkits", "pylab"}  # matplotlib installs them beside itself


def run(extras: tuple[str, ...], program: str, names: list[str], *arguments: str) -> Ended:
    """Run a program in a Python in which only the base and some extras can be found."""
    lacking = set(packages_distributions()) - modules(installed_with(*extras)) - {"tidegate"}
    lacking -= set(sys.stdlib_module_names)
    command = [sys.executable, "-P", "-W", "error", "-c", LACKING + program]
    ended = subprocess.run(
        [*command, json.dumps(sorted(lacking)), json.dumps(names), *arguments],
        capture_output=True,
        env=environment(),
        timeout=HANGS_S,
    )
    return Ended(ended.returncode, ended.stdout.decode(), ended.stderr.decode())


def in_folders(*folders: str) -> list[str]:
    """Every module below some folders of the product."""
    paths = [path for folder in folders for path in (ROOT / folder).rglob("*.py")]
    names = [".".join(path.relative_to(ROOT).with_suffix("").parts) for path in paths]
    shown = [name.removesuffix(".__init__") for name in names if not name.endswith("__main__")]
    return sorted(it if it.startswith("pyspark_tidegate") else f"tidegate.{it}" for it in shown)


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("extras", "folders", "without"),
    [
        ((), ("clients", "app/cli"), BEYOND_THE_BASE),
        (
            ("server",),
            ("app", "conflation", "keys"),
            ("app.archive", "app.cli.demo", "app.http.formats.arrow_stream"),
        ),
        (("archive",), ("app/archive", "app/http/formats"), ()),
        (("demo",), ("app/cli/demo",), ()),
        (("spark",), ("pipeline", "pyspark_tidegate"), SOURCES),
        (
            (),
            ("pipeline/ingest", "pipeline/forward"),
            (
                "pipeline.ingest.avro",
                "pipeline.ingest.protobuf",
                "pipeline.ingest.sources",
                "pipeline.forward.sinks",
            ),
        ),
        (
            (
                "archive",
                "avro",
                "kafka",
                "mqtt",
                "nats",
                "postgres",
                "protobuf",
                "rabbitmq",
                "websocket",
            ),
            ("pipeline/ingest", "pipeline/forward"),
            (),
        ),
    ],
    ids=["base", "server", "archive", "demo", "spark", "ingest", "sources"],
)
def test_a_part_imports_what_its_extra_brings(
    extras: tuple[str, ...], folders: tuple[str, ...], without: tuple[str, ...]
) -> None:
    names = in_folders(*folders)
    if without:
        left_out = tuple(f"tidegate.{name}" for name in without)
        names = [name for name in names if not name.startswith(left_out)]
    assert names
    ended = run(extras, IMPORT, names)
    assert (ended.code, ended.err) == (0, "")


@pytest.mark.nightly
def test_the_base_runs_the_command_line() -> None:
    assert run((), COMMAND, [], "--help").code == 0
    ended = run((), COMMAND, [], "version")
    assert (ended.code, ended.err) == (0, "")
    ended = run((), COMMAND, [], "topics", "list", "--gateway", "http://127.0.0.1:9")
    assert (ended.code, ended.err.count("\n")) == (3, 1)


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("extras", "verb", "wanted"),
    [
        ((), ["serve", "--data", ":memory:"], "server"),
        ((), ["restore", "backup.db"], "server"),
        ((), ["demo"], "demo"),
        (("server",), ["demo", "--no-spark"], "demo"),
        (("demo",), ["demo"], "spark"),
        (("server",), ["pipeline", "run", "streams.toml"], "spark"),
        (("server",), ["pipeline", "journal", "ticks", "--to", "archive"], "spark"),
        (
            ("spark",),
            ["pipeline", "plan", "x", "--key=/a", "--interval=1s", "--chart=a.png"],
            "plan",
        ),
    ],
)
def test_a_missing_extra_is_one_sentence(
    extras: tuple[str, ...], verb: list[str], wanted: str
) -> None:
    ended = run(extras, COMMAND, [], *verb)
    assert (ended.code, ended.out) == (78, "")
    assert f"needs the extra {wanted}, which is not installed: pip install " in ended.err
    assert ended.err.rstrip().endswith(f"[{wanted}]'")
    assert ended.err.count("\n") == 1


@pytest.mark.parametrize(
    ("module", "verb", "extra"),
    [
        ("fastapi", ["serve", "--data", ":memory:"], "server"),
        ("fastapi", ["restore", "backup.db"], "server"),
        ("psutil", ["demo", "--no-spark"], "demo"),
        ("pyspark", ["demo"], "spark"),
        ("pyspark", ["pipeline", "run", "streams.toml"], "spark"),
        ("matplotlib", ["pipeline", "plan", "x", "--key=/a", "--interval=1s", "--chart=a"], "plan"),
    ],
)
def test_a_verb_names_the_extra_that_it_misses(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    module: str,
    verb: list[str],
    extra: str,
) -> None:
    monkeypatch.setattr(
        installation, "find_spec", lambda name: None if name == module else find_spec(name)
    )
    assert main(verb) == 78
    assert capsys.readouterr().err.endswith(
        f"needs the extra {extra}, which is not installed: {install_command(extra)}\n"
    )


@pytest.mark.parametrize(
    ("recorded", "command"),
    [
        (
            {"url": "file:///home/a%20b/tidegate", "dir_info": {"editable": True}},
            "pip install -e '/home/a b/tidegate[server]'",
        ),
        ({"url": "file:///src/tidegate", "dir_info": {}}, "pip install '/src/tidegate[server]'"),
        (
            {"url": "file:///tmp/tidegate-0.1.0-py3-none-any.whl", "archive_info": {}},
            "pip install '/tmp/tidegate-0.1.0-py3-none-any.whl[server]'",
        ),
        (
            {"url": "https://host.example/t.whl", "archive_info": {}},
            "pip install 'tidegate[server] @ https://host.example/t.whl'",
        ),
        (
            {"url": "https://host.example/t", "vcs_info": {"vcs": "git", "commit_id": "1"}},
            "pip install 'tidegate[server] @ git+https://host.example/t'",
        ),
        (None, "pip install 'tidegate[server]'"),
    ],
)
def test_an_extra_is_installed_from_where_tidegate_came(
    monkeypatch: pytest.MonkeyPatch, recorded: dict[str, object] | None, command: str
) -> None:
    text = None if recorded is None else json.dumps(recorded)
    found = SimpleNamespace(read_text=lambda name: {"direct_url.json": text}[name])
    monkeypatch.setattr(installation, "distribution", lambda name: found)
    assert install_command("server") == command


def test_a_checkout_that_is_not_installed_names_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise PackageNotFoundError(name)

    monkeypatch.setattr(installation, "distribution", missing)
    assert install_command("server") == f"pip install '{ROOT}[server]'"


@pytest.mark.parametrize("extra", EXTRA_MODULES)
def test_a_verb_asks_for_all_that_its_extra_brings(extra: str) -> None:
    wanted = modules({requirement.name for requirement in declared(extra)})
    extensions = {name for name in wanted if name.startswith("_")}
    assert set(EXTRA_MODULES[extra]) == wanted - extensions - BESIDE


def test_all_is_every_extra_but_three() -> None:
    """Notebooks and the site bring IPython and Sphinx, which no server, pipeline or image has a use
    for, and the client of PostgreSQL is under the LGPL, version 3: who wants it asks for it.
    """
    left_out = {"docs", "notebook", "postgres"}
    every = {it for extra in set(EXTRAS) - left_out for it in declared(extra)}
    assert declared("all") == every
