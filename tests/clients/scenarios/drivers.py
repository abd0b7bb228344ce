"""The clients behind one set of verbs, so that a scenario is written once."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import json
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from dev import ROOT
from tests.browser.chromium import launched
from tests.js.node import Node, running_node
from tests.support.deadlines import HANGS_S
from tidegate.clients.aio.gateway import AsyncGateway
from tidegate.clients.aio.live import AsyncLive
from tidegate.clients.errors import GatewayError, GatewayProblem
from tidegate.clients.gateway import Gateway
from tidegate.clients.live.live import Live
from tidegate.clients.sse import Event

Answer = TypeVar("Answer")
TokenFile = str | None
LOOK_S = 0.01
JS = ROOT / "clients" / "js"


class Driver(ABC):
    """One client at work: dicts and logs by name, and what became of them.

    A wish has the names of the Python client: options, filter, order_by, deltas.
    """

    def __init__(
        self, addresses: list[str], token_file: TokenFile, stack: contextlib.ExitStack
    ) -> None:
        self.addresses = addresses
        self.token_file = token_file
        self.stack = stack
        self.said: list[str] = []

    @abstractmethod
    def follow(self, topic: str, **wish: Any) -> None:
        """Keep a dict of a topic, and return when it is whole."""

    @abstractmethod
    def held(self) -> list[Any]:
        """Return the values of the dict in their order."""

    @abstractmethod
    def removed(self) -> list[Any]:
        """Return the keys of records that a reader of changes saw leave."""

    @abstractmethod
    def refusal(self) -> str:
        """Return the code with which the dict is refused at the moment; empty if it is not."""

    @abstractmethod
    def log(self, topic: str, *, must_find: bool = False) -> None:
        """Follow every message of a topic from now on, or each that is kept: all must be found."""

    @abstractmethod
    def troubles(self) -> list[str]:
        """Return the sentences that the client has said of its log."""

    @abstractmethod
    def logged(self, count: int) -> list[Any]:
        """Return the next values of the log, once there are so many."""

    @abstractmethod
    def publish(self, topic: str, *values: Any) -> None:
        """Publish through the client."""

    def token(self) -> str:
        """Return the token as it is at this moment."""
        assert self.token_file is not None
        return Path(self.token_file).read_text().strip()

    def await_refusal(self, code: str) -> None:
        """Wait until the dict is refused with this code."""
        ends_at = time.monotonic() + HANGS_S
        while (found := self.refusal()) != code:
            assert time.monotonic() < ends_at, f"it never came: {found!r}"
            time.sleep(LOOK_S)

    def await_removed(self, is_so: Callable[[list[Any]], bool]) -> None:
        """Wait until those that left are as a scenario says: their reader may be a step behind."""
        ends_at = time.monotonic() + HANGS_S
        while not is_so(found := self.removed()):
            assert time.monotonic() < ends_at, f"they never left: {found}"
            time.sleep(LOOK_S)

    def await_held(self, is_so: Callable[[list[Any]], bool]) -> list[Any]:
        """Return the values once they are as a scenario says; a timeout names what was there."""
        ends_at = time.monotonic() + HANGS_S
        while not is_so(found := self.held()):
            assert time.monotonic() < ends_at, f"it never came: {found}"
            time.sleep(LOOK_S)
        return found


class Sync(Driver):
    def __init__(self, addresses: list[str], token_file: TokenFile, stack: contextlib.ExitStack):
        super().__init__(addresses, token_file, stack)
        token = None if token_file is None else self.token
        self.gateway = stack.enter_context(Gateway(addresses, token=token))
        self.gone: list[Any] = []

    def follow(self, topic: str, **wish: Any) -> None:
        self.live: Live = self.stack.enter_context(self.gateway.live(topic, **wish))
        # It ends with the dict, which the stack closes.
        reading = threading.Thread(target=self._note_removals, args=(self.live,))
        reading.start()
        self.stack.callback(reading.join, HANGS_S)
        self.stack.callback(self.live.close)

    def _note_removals(self, live: Live) -> None:
        for changes in live.changes():
            self.gone += [row.key and row.key[0] for row in changes.removed]

    def held(self) -> list[Any]:
        return [row.value for row in self.live.in_order()]

    def removed(self) -> list[Any]:
        return self.gone

    def refusal(self) -> str:
        return _code_of(self.live.outage)

    def log(self, topic: str, *, must_find: bool = False) -> None:
        given = _log_options(must_find)
        self.events = self.stack.enter_context(
            self.gateway.subscribe(
                topic, options=given, format="envelope", trouble=self.said.append
            )
        )
        assert next(self.events).name == "hello"

    def troubles(self) -> list[str]:
        return self.said

    def logged(self, count: int) -> list[Any]:
        found: list[Any] = []
        while len(found) < count:
            found += _values(next(self.events))
        return found

    def publish(self, topic: str, *values: Any) -> None:
        self.gateway.publish(topic, [msgspec.json.encode(value) for value in values])


class Asyncio(Driver):
    """Its loop runs in a thread of its own, as the scenarios have none."""

    def __init__(self, addresses: list[str], token_file: TokenFile, stack: contextlib.ExitStack):
        super().__init__(addresses, token_file, stack)
        self.loop = asyncio.new_event_loop()
        thread = threading.Thread(target=self.loop.run_forever)
        thread.start()
        stack.callback(self.loop.close)
        stack.callback(thread.join, HANGS_S)
        stack.callback(self.loop.call_soon_threadsafe, self.loop.stop)
        stack.callback(lambda: self.run(self.closed()))
        self.tasks: list[asyncio.Task[None]] = []
        self.gone: list[Any] = []
        self.run(self.open())

    def run(self, work: Coroutine[Any, Any, Answer]) -> Answer:
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(HANGS_S)

    async def open(self) -> None:
        token = None if self.token_file is None else self.token
        self.kept = contextlib.AsyncExitStack()
        self.gateway = await self.kept.enter_async_context(
            AsyncGateway(self.addresses, token=token)
        )

    async def closed(self) -> None:
        await self.kept.aclose()
        for task in self.tasks:
            await task
        await self.loop.shutdown_asyncgens()

    def follow(self, topic: str, **wish: Any) -> None:
        self.live = self.run(self.followed(topic, wish))

    async def followed(self, topic: str, wish: dict[str, Any]) -> AsyncLive:
        live = await self.kept.enter_async_context(self.gateway.live(topic, **wish))
        self.tasks.append(asyncio.create_task(self.note_removals(live)))
        return live

    async def note_removals(self, live: AsyncLive) -> None:
        async for changes in live.changes():
            self.gone += [row.key and row.key[0] for row in changes.removed]

    def held(self) -> list[Any]:
        return self.run(self.values())

    async def values(self) -> list[Any]:
        return [row.value for row in self.live.in_order()]

    def removed(self) -> list[Any]:
        return self.gone

    def refusal(self) -> str:
        return _code_of(self.live.outage)

    def log(self, topic: str, *, must_find: bool = False) -> None:
        self.events = self.run(self.opened_log(topic, _log_options(must_find)))

    def troubles(self) -> list[str]:
        return self.said

    async def opened_log(self, topic: str, options: str) -> AsyncIterator[Event]:
        events = await self.kept.enter_async_context(
            self.gateway.subscribe(
                topic, options=options, format="envelope", trouble=self.said.append
            )
        )
        assert (await anext(events)).name == "hello"
        return events

    def logged(self, count: int) -> list[Any]:
        return self.run(self.next_logged(count))

    async def next_logged(self, count: int) -> list[Any]:
        found: list[Any] = []
        while len(found) < count:
            found += _values(await anext(self.events))
        return found

    def publish(self, topic: str, *values: Any) -> None:
        lines = [msgspec.json.encode(value) for value in values]
        self.run(self.gateway.publish(topic, lines))


class JavaScript(Driver):
    """The JavaScript client, wherever `run` runs the body of an async function."""

    @abstractmethod
    def run(self, code: str) -> Any:
        """Return what the code does; its integers are exact."""

    def connect(self, **options: str) -> None:
        """Connect, each option a piece of code."""
        options["trouble"] = "(sentence) => state.said.push(sentence)"
        given = ", ".join(f"{name}: {code}" for name, code in options.items())
        self.run(
            f"state.said = []; state.gateway = connect({json.dumps(self.addresses)}, {{{given}}})"
        )
        self.stack.callback(self.run, "await state.gateway.close()")

    def follow(self, topic: str, **wish: Any) -> None:
        names = {"order_by": "orderBy"}
        named = {names.get(name, name): value for name, value in wish.items()}
        self.run(
            f"state.rows = state.gateway.subscribe({json.dumps(topic)}, {json.dumps(named)});"
            "state.gone = []; state.rows.addEventListener('change',"
            " ({removed}) => state.gone.push(...removed.map((row) => row.key && row.key[0])));"
            "await state.rows.ready"
        )

    def held(self) -> list[Any]:
        values = self.run("return state.rows.inOrder().map((row) => row.value)")
        assert isinstance(values, list)
        return values

    def removed(self) -> list[Any]:
        gone = self.run("return state.gone")
        assert isinstance(gone, list)
        return gone

    def refusal(self) -> str:
        return str(self.run("return state.rows.code"))

    def log(self, topic: str, *, must_find: bool = False) -> None:
        start = ", bookmark: 'epoch', options: 'bookmark_not_found=fail'" if must_find else ""
        self.run(
            f"state.log = state.gateway.subscribe({json.dumps(topic)},"
            f" {{interval: 'none'{start}}});"
            "state.messages = state.log.messages(); await state.log.ready"
        )

    def troubles(self) -> list[str]:
        said = self.run("return state.said")
        assert isinstance(said, list)
        return said

    def logged(self, count: int) -> list[Any]:
        values = self.run(
            "const late = new Promise((_, fail) => setTimeout(fail, 120_000, Error('none came')));"
            f"const got = []; while (got.length < {count})"
            " got.push((await Promise.race([late, state.messages.next()])).value.value);"
            "late.catch(() => {}); return got"
        )
        assert isinstance(values, list)
        return values

    def publish(self, topic: str, *values: Any) -> None:
        # As text, read by the client's own exact reader: JavaScript's literals would round.
        texts = json.dumps([json.dumps(value) for value in values])
        self.run(
            f"await state.gateway.publish({json.dumps(topic)}, {texts}.map((text) => parse(text)))"
        )


class InNode(JavaScript):
    """The JavaScript client in Node."""

    def __init__(
        self,
        addresses: list[str],
        token_file: TokenFile,
        stack: contextlib.ExitStack,
        **options: str,
    ) -> None:
        super().__init__(addresses, token_file, stack)
        self.node: Node = stack.enter_context(running_node())
        if token_file is not None:
            name = json.dumps(token_file)
            options["token"] = (
                f"async () => (await import('node:fs')).readFileSync({name}, 'utf8').trim()"
            )
        self.connect(**options)

    def run(self, code: str) -> Any:
        return self.node.run(code)


class InChromium(JavaScript):
    """The JavaScript client in pages of a Chromium; those after the first are tabs beside it.

    The pages have an origin of their own, as those of other people's applications do.
    """

    def __init__(
        self,
        addresses: list[str],
        token_file: TokenFile,
        stack: contextlib.ExitStack,
        **options: str,
    ) -> None:
        super().__init__(addresses, token_file, stack)
        browser = stack.enter_context(launched())
        self.context = browser.new_context()
        self.origin = stack.enter_context(_pages())
        if token_file is not None:
            self.context.expose_function("tokenNow", self.token)
            options["token"] = "() => tokenNow()"
        self.options = options
        self.page = self.context.new_page()
        self.open()

    def open(self) -> None:
        """Open the client's page, and connect."""
        self.page.goto(self.origin)
        self.connect(**self.options)

    def tab(self) -> InChromium:
        """Return a client in another tab of the same browser."""
        other = copy.copy(self)
        other.page = self.context.new_page()
        other.open()
        return other

    def hide(self, is_hidden: bool) -> None:
        """Tell the page that nobody looks at it, or that somebody does."""
        self.run(
            "Object.defineProperty(document, 'visibilityState',"
            f" {{ get: () => '{'hidden' if is_hidden else 'visible'}', configurable: true }});"
            "document.dispatchEvent(new Event('visibilitychange'))"
        )

    def run(self, code: str) -> Any:
        if self.page.is_closed():
            return None
        answer = json.loads(self.page.evaluate(IN_PAGE % code))
        assert "error" not in answer, answer["error"]
        return answer["value"]


IN_PAGE = """async () => {
  const { connect, parse, stringify } = await import("/client.js");
  const state = (window.state ??= {});
  const until = async (isSo) => {
    for (const end = Date.now() + 120_000; !isSo(); ) {
      if (Date.now() > end) throw new Error(`it never came: ${isSo}`);
      await new Promise((resolve) => setTimeout(resolve, 5));
    }
  };
  const run = async () => {
    %s
  };
  try {
    return stringify({ value: (await run()) ?? null });
  } catch (error) {
    return stringify({ error: String(error?.stack ?? error) });
  }
}"""


@contextlib.contextmanager
def _pages() -> Iterator[str]:
    """The origin of a server of the client's files; its start page lists them.

    A real one on this machine: a page that the browser takes for one of the network may not ask
    gateways on the loopback address.
    """
    with ThreadingHTTPServer(("127.0.0.1", 0), _Files) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join(HANGS_S)


class _Files(SimpleHTTPRequestHandler):
    def __init__(self, *given: Any) -> None:
        super().__init__(*given, directory=str(JS))

    def log_message(self, *_: Any) -> None:
        """Print nothing."""


def _code_of(outage: GatewayError | None) -> str:
    return outage.code if isinstance(outage, GatewayProblem) else ""


def _log_options(must_find: bool) -> str:
    start = ",bookmark=epoch,bookmark_not_found=fail" if must_find else ""
    return f"conflation=none{start}"


def _values(event: Event) -> Iterator[Any]:
    if event.name == "message":
        yield event.fields["value"]


PYTHON: dict[str, type[Driver]] = {"sync": Sync, "asyncio": Asyncio}
JAVASCRIPT: dict[str, type[InNode | InChromium]] = {"node": InNode, "chromium": InChromium}
