"""A replay on its way into a topic: request after request, each of them once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pipeline.archive.bodies import body_of, media_type_of, messages_max_of
from pipeline.archive.mark import Mark, Noted
from pipeline.archive.recorded import BEGINNING, History, Place, Recorded, Window
from pipeline.definitions.moment import moment_text
from pipeline.errors import ArchiveUnusable, GatewayRefused
from pipeline.gateway import Gateway


@dataclass(frozen=True, slots=True)
class Totals:
    """Messages and removals published since the start, and the recorded time of the last.

    `repeated` of them an earlier run had published; `passed` removals had no record to remove.
    """

    messages: int = 0
    repeated: int = 0
    passed: int = 0
    clock_ms: int = 0


class Replaying:
    """Publishes to one topic, and notes before each request what is in it."""

    def __init__(self, gateway: Gateway, topic: str, mark: Mark, noted: Noted) -> None:
        """Look what the topic takes."""
        self.totals = Totals()
        self.noted = noted
        self._gateway = gateway
        self._topic = topic
        self._mark = mark
        found = gateway.topic(topic) or {}  # one that is not there is made, of JSON without a key
        self._kind: str = found.get("type", "json")
        self._removes = bool(found.get("key"))

    @property
    def messages_max(self) -> int:
        """How many messages a request carries at most."""
        return messages_max_of(self._kind)

    def send_again(self, history: History, window: Window) -> None:
        """Send what was noted last under its number: the gateway knows whether it has it.

        All of it, also where the window ends earlier by now: it may have been published.

        Raises:
            ArchiveUnusable: it is not there any more.
            HistoryInvalid, GatewayRefused, GatewayUnreachable: as `send`.
        """
        noted = self.noted
        if noted.through == BEGINNING:
            return
        stretch: list[Recorded] = []
        for message in history.messages(noted.after, Window(window.from_ms)):
            stretch.append(message)
            if message.place == noted.through:
                self._publish(stretch)
                return
        raise ArchiveUnusable(f"position {noted.through.position}, the last one sent, is gone")

    def send(self, messages: Sequence[Recorded]) -> None:
        """Publish what follows, as one request: all of it or nothing, and once.

        Raises:
            HistoryInvalid: one is no message for such a topic.
            GatewayRefused: the text says where what it was refused for stands.
            GatewayUnreachable: nobody answers.
        """
        last, before = messages[-1].place, self.noted
        self.noted = Noted(
            before.of, before.producer, before.sequence + 1, before.through, Place(*last)
        )
        self._mark.note(self.noted)
        self._publish(messages)

    def line(self) -> str:
        """What was done so far."""
        done = self.totals
        line = f"{self._topic}: {done.messages:,} messages published"
        if done.repeated:
            line += f", {done.repeated:,} of them by an earlier run"
        if done.passed:
            line += f", {done.passed:,} removals passed over: the topic has no key"
        return line + (f", up to {moment_text(done.clock_ms)}" if done.clock_ms else "")

    def _publish(self, messages: Sequence[Recorded]) -> None:
        sent = [each for each in messages if each.value is not None or self._removes]
        is_new = self._post(sent) if sent else True
        done = self.totals
        self.totals = Totals(
            done.messages + len(sent),
            done.repeated + (0 if is_new else len(sent)),
            done.passed + len(messages) - len(sent),
            messages[-1].clock_ms,
        )

    def _post(self, sent: Sequence[Recorded]) -> bool:
        """Publish under the number that is noted; False if it had been published."""
        noted, body = self.noted, body_of(self._kind, sent)
        media_type = media_type_of(self._kind)
        try:
            return self._gateway.publish(
                self._topic, body, noted.producer, noted.sequence, media_type
            )
        except GatewayRefused as error:
            line = error.line or (1 if len(sent) == 1 else 0)
            if not 1 <= line <= len(sent):
                raise
            said = str(error).removesuffix(f" (line {line})")
            raise type(error)(f"{sent[line - 1].spot}: {said}") from error
