"""Pages: sessions by id, those of all gateways that share a bus among them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from app.inner_call import Reply


class _Document(msgspec.Struct, frozen=True):
    sessions: list[dict[str, Any]]
    next: str | None = None


class Page(NamedTuple):
    """Views of sessions by id, at most as many as were wanted, and whether more follow.

    `missing`: gateways whose sessions are not among them, as they did not answer; None where
    there are no others.
    """

    sessions: Sequence[Mapping[str, Any]]
    has_more: bool
    missing: Sequence[str] | None = None

    def joined(self, replies: Mapping[str, Reply | None], limit: int) -> Page:
        """One page of this and of what other gateways have answered, by their ids."""
        views = {view["session"]: view for view in self.sessions}
        has_more, missing = self.has_more, []
        for gateway, reply in replies.items():
            if reply is None or reply.status != 200:
                missing.append(gateway)
                continue
            document = msgspec.json.decode(reply.body, type=_Document)
            has_more = has_more or document.next is not None
            for view in document.sessions:
                views.setdefault(view["session"], view)  # one that was moving is told twice
        ids = sorted(views)
        return Page([views[each] for each in ids[:limit]], has_more or len(ids) > limit, missing)
