"""A client that openapi-python-client makes of /openapi.json talks to a running gateway."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.support.gateways import running_gateway
from tidegate.app.http.application import create_app
from tidegate.app.settings.settings import Settings

pytestmark = pytest.mark.nightly
DOCUMENT = create_app(Settings()).openapi()
NAME = "tidegate_generated"
ARRAY = {"Accept": "application/json"}  # NDJSON is more than the generator reads


class Generated:
    """The package that was made, by the names of its modules."""

    def __getattr__(self, name: str) -> ModuleType:
        """The module of an operation, found by its tag."""
        for methods in DOCUMENT["paths"].values():
            for operation in methods.values():
                if operation["operationId"] == name:
                    tag = operation["tags"][0].replace(" ", "_")
                    return importlib.import_module(f"{NAME}.api.{tag}.{name}")
        raise AttributeError(name)

    def model(self, name: str, values: dict[str, Any]) -> Any:
        """A body."""
        return getattr(importlib.import_module(f"{NAME}.models"), name).from_dict(values)

    def client(self, address: str) -> Any:
        """Of a gateway."""
        return importlib.import_module(NAME).Client(
            base_url=address, headers=ARRAY, httpx_args={"trust_env": False}
        )


@pytest.fixture(scope="module")
def generated(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Generated]:
    folder = tmp_path_factory.mktemp("generated")
    (folder / "openapi.json").write_text(json.dumps(DOCUMENT))
    (folder / "config.json").write_text(json.dumps({"post_hooks": []}))
    command = [sys.executable, "-m", "openapi_python_client", "generate", "--meta", "none"]
    command += ["--path", "openapi.json", "--config", "config.json", "--output-path", NAME]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)
    sys.path.insert(0, str(folder))
    yield Generated()
    sys.path.remove(str(folder))
    for name in [name for name in sys.modules if name.split(".")[0] == NAME]:
        del sys.modules[name]


def test_every_operation_is_there(generated: Generated) -> None:
    folder = Path(importlib.import_module(NAME).__path__[0])
    made = {path.stem for path in folder.glob("api/*/*.py")} - {"__init__"}
    wanted = {
        operation["operationId"]
        for methods in DOCUMENT["paths"].values()
        for operation in methods.values()
    }
    assert made == wanted


async def test_what_is_published_is_read(generated: Generated) -> None:
    async with running_gateway() as running, generated.client(running.address) as client:
        definition = generated.model("TopicDefinition", {"key": ["/symbol"]})
        topic = await generated.put_topic.asyncio("prices", client=client, body=definition)
        assert (topic.topic, topic.key, topic.messages_in) == ("prices", ["/symbol"], 0)
        message = generated.model("Message", {"symbol": "IBM", "price": 7})
        published = await generated.publish.asyncio("prices", client=client, body=message)
        assert (published.messages, published.duplicate) == (1, False)
        rows = await generated.read_sow.asyncio("prices", client=client)
        assert rows == [{"symbol": "IBM", "price": 7}]
        form = generated.read_sow._get_kwargs.__annotations__["format_"].__args__[0]
        rows = await generated.read_sow.asyncio("prices", client=client, format_=form.ENVELOPE)
        assert [(row.key, row.bookmark) for row in rows] == [(["IBM"], published.last)]


async def test_refusals_are_read_too(generated: Generated) -> None:
    async with running_gateway() as running, generated.client(running.address) as client:
        problem = await generated.get_topic.asyncio("zzq", client=client)
        assert (problem.code, problem.status) == ("topic-unknown", 404)
        asked = generated.model("SubscriptionRequest", {"topic": "zzq"})
        opening = generated.model("SessionOpening", {"subscriptions": [asked.to_dict()]})
        problem = await generated.open_session.asyncio(client=client, body=opening)
        assert (problem.code, problem.pointer) == ("topic-unknown", "/subscriptions/0")
        session = await generated.open_session.asyncio(client=client)
        shown = await generated.get_session.asyncio(session.session, client=client)
        assert (shown.state.value, shown.subscriptions) == ("away", [])
