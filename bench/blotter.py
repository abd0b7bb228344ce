"""The console's blotter in a browser: frames while 10,000 rows change, a scroll through 100,000.

A headless Chromium shows one panel. The page notes the time of each frame; the browser's trace has
each task of the page's main thread, with the CPU that it took: on a busy machine a frame is late
for want of a core, and a task is not. Memory is the heap of the page's scripts with what is not yet
collected, and what the page's process shares with no other.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx2
import psutil
from playwright.sync_api import Browser, Page, ViewportSize

from bench.figure import Figure
from bench.servers.gateway import NDJSON, Gateway, gateway
from bench.servers.process import HANGS_S, LOAD_CORE, SERVER_CORE, running
from tests.browser.chromium import launched
from tests.support.outside import CHROMIUM

CHANGING = 10_000
KEYS = 100_000
AT_ONCE = 1_000  # messages of a request
EACH_S = 0.5  # each of the changing rows has a new value in this time, as long as the interval
VARIANTS = 4  # of the bodies of each request, made before: the feed costs next to nothing
WARMING_S = 4.0
WINDOW_S = 12.0
FRAMES_PER_S_MIN = 50.0
MEMORY_MB_MAX = 300.0
STALL_MS_MAX = 100.0
SIZE = ViewportSize(width=1600, height=900)
MB = 1e6
LOOK_MS = 500
TASK = "ThreadControllerImpl::RunTask"  # of a trace

WATCH = """() => {
  window.frames_at = [];
  const frame = (at) => {
    window.frames_at.push(at);
    requestAnimationFrame(frame);
  };
  requestAnimationFrame(frame);
}"""
BUSY = "() => { const end = performance.now() + 500; while (performance.now() < end); }"
SCROLL = """async (kind) => {
  const grid = document.querySelector('[role="grid"][aria-label="Records"]');
  const frame = () => new Promise((done) => requestAnimationFrame(done));
  const end = grid.scrollHeight - grid.clientHeight;
  const steps = 400;
  for (let step = 1; step <= steps; step += 1) {
    // A wheel that is turned fast, then the bar that is dragged from end to end.
    if (kind === "wheel") grid.scrollTop += 300;
    else grid.scrollTop = end * (step % 40) / 40;
    await frame();
  }
}"""


@dataclass(slots=True)
class Seen:
    """What a page did for a while: times in ms, CPU in s."""

    frames_at: list[float]
    passed_s: float
    ran_s: float
    waited_s: float
    longest_task_ms: float
    longest_task_cpu_ms: float

    @property
    def frames_a_second(self) -> float:
        """The mean rate of its frames."""
        return (len(self.frames_at) - 1) / (self.frames_at[-1] - self.frames_at[0]) * 1_000

    @property
    def longest_frame_ms(self) -> float:
        """The longest time between two frames."""
        return max(after - before for before, after in pairwise(self.frames_at))

    @property
    def note(self) -> str:
        """What the machine had else to do."""
        share_ms = self.waited_s / self.passed_s * 1_000
        return f"other work kept the page waiting {share_ms:.0f} ms in a second"


class Watched:
    """A page of the console under measurement."""

    def __init__(self, browser: Browser, page: Page) -> None:
        self.page = page
        self._browser = browser
        self._cdp = page.context.new_cdp_session(page)
        self._cdp.send("Performance.enable")
        self._process = _process_of(browser, page)
        page.evaluate(WATCH)

    def heap_mb(self) -> float:
        """Return the heap of the page's scripts, with what is not yet collected."""
        listed = self._cdp.send("Performance.getMetrics")["metrics"]
        metrics = {each["name"]: each["value"] for each in listed}
        return float(metrics["JSHeapUsedSize"]) / MB

    def process_mb(self) -> float:
        """Return what the page's process shares with no other."""
        return float(self._process.memory_full_info().uss) / MB

    def during(self, act: Callable[[], None]) -> Seen:
        """Return what the page did during a call."""
        self.page.evaluate("() => { window.frames_at = []; }")
        self._browser.start_tracing(page=self.page, categories=["toplevel"])
        before, began = self._main_thread_s(), time.monotonic()
        act()
        passed_s, after = time.monotonic() - began, self._main_thread_s()
        frames_at = self.page.evaluate("() => window.frames_at")
        tasks = self._tasks(json.loads(self._browser.stop_tracing())["traceEvents"])
        return Seen(
            frames_at, passed_s, after[0] - before[0], after[1] - before[1],
            max(each["dur"] for each in tasks) / 1_000,
            max(each["tdur"] for each in tasks) / 1_000,
        )  # fmt: skip

    def _main_thread_s(self) -> tuple[float, float]:
        """Return the seconds for which it has run, and has waited for a core."""
        ran, waited, _ = Path("/proc", str(self._process.pid), "schedstat").read_text().split()
        return int(ran) / 1e9, int(waited) / 1e9

    def _tasks(self, events: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Return the whole tasks of the main thread, whose number is that of the process."""
        main = self._process.pid
        ended = (each for each in events if "tdur" in each)
        return [each for each in ended if each["name"] == TASK and each["tid"] == main]


def figures() -> Iterator[Figure]:
    """Yield frames, memory and the longest stalls of the blotter."""
    if not CHROMIUM.exists():
        print(f"There is no Chromium at {CHROMIUM}.")
        return
    with gateway() as server, browser_on_all_cores() as browser:
        for topic, keys in (("changing", CHANGING), ("many", KEYS)):
            server.define(topic)
            for body in bodies(keys):
                server.publish(body, topic)
        with opened(browser, server, "changing", CHANGING) as page, changing(server, "changing"):
            yield from _frames(page)
        with opened(browser, server, "many", KEYS) as page:
            yield Figure(f"{KEYS:,} keys: JS heap", page.heap_mb(), "MB")
            yield Figure(f"{KEYS:,} keys: process of the page", page.process_mb(), "MB")
            yield from _scrolls(page, f"{KEYS:,} keys")
            with changing(server, "many"):
                page.page.wait_for_timeout(WARMING_S * 1_000)
                yield from _scrolls(page, f"{KEYS:,} keys, {CHANGING:,} changing")


def _frames(watched: Watched) -> Iterator[Figure]:
    heap, process = [], []

    def look() -> None:
        end = time.monotonic() + WINDOW_S
        while time.monotonic() < end:
            watched.page.wait_for_timeout(LOOK_MS)
            heap.append(watched.heap_mb())
            process.append(watched.process_mb())

    watched.page.wait_for_timeout(WARMING_S * 1_000)
    seen = watched.during(look)
    name, note = f"{CHANGING:,} rows change at 500ms", seen.note
    yield Figure(f"{name}: frames", seen.frames_a_second, "/s", None, FRAMES_PER_S_MIN, note)
    yield Figure(f"{name}: longest frame", seen.longest_frame_ms, "ms", note=note)
    yield Figure(f"{name}: longest task", seen.longest_task_ms, "ms", note=note)
    yield Figure(f"{name}: longest task, CPU", seen.longest_task_cpu_ms, "ms", scale="cpu")
    busy = seen.ran_s / seen.passed_s * 100
    yield Figure(f"{name}: main thread", busy, "% of a core", scale="cpu")
    yield Figure(f"{name}: JS heap, most", max(heap), "MB", MEMORY_MB_MAX)
    yield Figure(f"{name}: process of the page, most", max(process), "MB", MEMORY_MB_MAX)


def _scrolls(watched: Watched, name: str) -> Iterator[Figure]:
    for kind in ("wheel", "bar"):
        seen = watched.during(partial(watched.page.evaluate, SCROLL, kind))
        scroll, note = f"{name}, {kind}", f"{len(seen.frames_at)} frames; {seen.note}"
        most = STALL_MS_MAX
        yield Figure(f"{scroll}: longest frame", seen.longest_frame_ms, "ms", most, note=note)
        yield Figure(f"{scroll}: longest task", seen.longest_task_ms, "ms", most, note=note)
        cpu_ms = seen.longest_task_cpu_ms
        yield Figure(f"{scroll}: longest task, CPU", cpu_ms, "ms", most, scale="cpu")


@contextmanager
def browser_on_all_cores() -> Iterator[Browser]:
    """Start a Chromium that may use all cores: its compositor is a separate process."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {SERVER_CORE, LOAD_CORE})
    try:
        with launched() as browser:
            yield browser
    finally:
        os.sched_setaffinity(0, before)


@contextmanager
def opened(browser: Browser, server: Gateway, topic: str, rows: int) -> Iterator[Watched]:
    """Open the blotter of a topic in a browser profile of its own, with all rows there."""
    context = browser.new_context(viewport=SIZE)
    page = context.new_page()
    page.set_default_timeout(HANGS_S * 1_000)
    page.goto(f"http://127.0.0.1:{server.port}/console#/blotter?topic={topic}&interval=500ms")
    page.wait_for_selector(f'[role="grid"][aria-rowcount="{rows + 1}"]')
    try:
        yield Watched(browser, page)
    finally:
        context.close()


def _process_of(browser: Browser, page: Page) -> psutil.Process:
    """Return the process of a page: which one is busy when the page is. Others wait for a page."""
    listed = browser.new_browser_cdp_session().send("SystemInfo.getProcessInfo")["processInfo"]
    found = [psutil.Process(each["id"]) for each in listed if each["type"] == "renderer"]
    before = {process: process.cpu_times().user for process in found}
    page.evaluate(BUSY)
    return max(found, key=lambda process: process.cpu_times().user - before[process])


@contextmanager
def changing(server: Gateway, topic: str) -> Iterator[None]:
    """Change the first rows of a topic meanwhile, from a process of its own."""
    command = [sys.executable, "-m", "bench.blotter", str(server.port), topic]
    with running(command, (LOAD_CORE,)) as feed:
        feed.read()  # it has begun
        yield


def bodies(keys: int, number: int = 0) -> Iterator[bytes]:
    """Yield the bodies that give each key a value."""
    for first in range(0, keys, AT_ONCE):
        yield b"\n".join(_message(key, number) for key in range(first, first + AT_ONCE))


def _message(key: int, number: int) -> bytes:
    price = 100 + (key * 7 + number * 13) % 400
    row: dict[str, Any] = {
        "tickerId": f"T{key:06}", "exchange": "NPQ"[key % 3], "desk": f"desk {key % 20}",
        "bid": price + 0.25, "bidSize": 100 * (key % 9 + number),
        "ask": price + 0.75, "askSize": 100 * (key % 7 + number),
        "last": price + 0.5, "volume": 1_000 * key + number, "ts": 1_790_000_000_000 + number,
    }  # fmt: skip
    return json.dumps(row, separators=(",", ":")).encode()


def _change(port: int, topic: str) -> None:
    """Publish a new value of each row in each interval, until this process is ended."""
    made = [list(bodies(CHANGING, number)) for number in range(1, VARIANTS + 1)]
    requests = len(made[0])
    address = f"http://127.0.0.1:{port}/v1/topics/{topic}/messages"
    with httpx2.Client(timeout=HANGS_S, trust_env=False) as client:
        print("begun", flush=True)
        began = time.monotonic()
        for number in range(10**9):
            time.sleep(max(0.0, began + number * EACH_S / requests - time.monotonic()))
            body = made[number // requests % VARIANTS][number % requests]
            client.post(address, content=body, headers=NDJSON).raise_for_status()


if __name__ == "__main__":
    _change(int(sys.argv[1]), sys.argv[2])
