"""The widget of a notebook is one module, made of those that the gateway serves."""

from __future__ import annotations

import re
import threading
import time
from collections import Counter
from collections.abc import Callable

import pytest

from tests.support.commands import serving_here
from tests.support.deadlines import HANGS_S
from tidegate.clients.gateway import Gateway
from tidegate.clients.live import notebook
from tidegate.clients.live.notebook import LiveView, module_text

DECLARED = re.compile(r"^(?:async )?(?:function\*?|class|const|let) (\w+)", re.MULTILINE)


def test_no_name_is_declared_twice() -> None:
    """A browser would refuse the whole module."""
    names = Counter(DECLARED.findall(module_text()))
    assert len(names) > 20
    assert [name for name, count in names.items() if count > 1] == []


def threads_of_views() -> int:
    return sum(each.name.startswith("tidegate-view") for each in threading.enumerate())


def await_until(what: Callable[[], bool]) -> None:
    deadline = time.monotonic() + HANGS_S
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.mark.system
def test_a_view_has_one_thread_and_none_after_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where nothing changes, however often its page is opened."""
    monkeypatch.setattr(notebook, "POLL_S", 0.02)
    sent: list[object] = []
    monkeypatch.setattr(LiveView, "send", lambda view, content: sent.append(content))
    with serving_here() as address, Gateway(address) as gateway:
        gateway.put_topic("px", {"key": ["/id"]})
        gateway.publish("px", {"id": 1})
        with gateway.live("px") as live:
            view, other = LiveView(live), LiveView(live)
            for _ in range(5):
                view._begin(view, {"type": "begin"}, [])
            other._begin(other, {"type": "begin"}, [])
            await_until(lambda: threads_of_views() == 2)
            await_until(lambda: len(sent) >= 2)
            view.close()
            await_until(lambda: threads_of_views() == 1)
        await_until(lambda: threads_of_views() == 0)
        assert other.status == "ended: CLOSED"
        other.close()
