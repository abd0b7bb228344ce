"""The widget of a notebook is one module, made of those that the gateway serves."""

from __future__ import annotations

import re
from collections import Counter

from tidegate.clients.live.notebook import module_text

DECLARED = re.compile(r"^(?:async )?(?:function\*?|class|const|let) (\w+)", re.MULTILINE)


def test_no_name_is_declared_twice() -> None:
    """A browser would refuse the whole module."""
    names = Counter(DECLARED.findall(module_text()))
    assert len(names) > 20
    assert [name for name, count in names.items() if count > 1] == []
