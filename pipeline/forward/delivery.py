"""One topic in a thread: read rows, write them, note the position; and all forwards of a file."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from pathlib import Path

import msgspec

from tidegate.clients.gateway import Gateway
from tidegate.pipeline.connection import gateway_at, reported_retry
from tidegate.pipeline.forward.definition import ForwardDefinition, read_definitions
from tidegate.pipeline.forward.feed import Feed
from tidegate.pipeline.forward.position import PositionFile
from tidegate.pipeline.forward.target import (
    DeclaredTarget,
    FeedBatch,
    Patience,
    Position,
    PositionedTarget,
    Refusal,
    Target,
)
from tidegate.pipeline.operations.shutdown import Stop, print_line, until_stopped
from tidegate.pipeline.operations.status import BatchCount
from tidegate.pipeline.operations.supervisor import RunOptions, Say
from tidegate.pipeline.operations.threads import (
    READ_SECONDS,
    ThreadRun,
    ThreadStream,
    run_threads,
)

DEAD_ROW_BYTES_MAX = 256 * 1024


class Forward(ThreadStream):
    """The topic of a definition on its way to a target.

    `say` gets a line when the gateway or the target does not answer.
    """

    def __init__(self, definition: ForwardDefinition, say: Say) -> None:
        name, topic = definition.name, definition.topic
        headline = f"{name}: topic {topic} to {definition.sink.label}"
        super().__init__(name, definition.gateway, headline, definition.dead_letters)
        self.definition = definition
        self._say = say

    def work(self, run: ThreadRun) -> None:
        """Write what the topic has, until the run is asked to end."""
        definition = self.definition
        retry = reported_retry(definition.gateway, self._say, run.pause)
        patience = Patience(run.pause, lambda line: self._say(f"{definition.name}: {line}"))
        with (
            gateway_at(definition.gateway, retry) as gateway,
            self._opened(patience) as (target, position),
        ):
            if isinstance(target, DeclaredTarget):
                target.declare((gateway.find_topic(definition.topic) or {}).get("schema"))
            after = position.resume(definition.identity)
            outbox: PositionFile | None = None
            if definition.sink.knows_message_ids:
                assert isinstance(position, PositionFile), "such a target keeps no position"
                outbox = position
                if (left := outbox.unfinished) is not None:
                    run.batch(partial(self._write, gateway, target, position, left))
                    after = left.after
            with closing(Feed(gateway, definition, after, self._say)) as feed:
                self._follow(run, gateway, feed, target, position, outbox, is_new=not after)

    @contextmanager
    def _opened(self, patience: Patience) -> Iterator[tuple[Target, Position]]:
        """Yield the target, open, and its position."""
        definition = self.definition
        with ExitStack() as closed:
            position: Position
            if definition.position is not None:
                # Before the target: only the process that has the position may write to it.
                position = closed.enter_context(closing(PositionFile(definition.position)))
            target = definition.sink.target(definition.name, patience)
            closed.enter_context(closing(target))
            target.open()
            if definition.position is None:
                assert isinstance(target, PositionedTarget), "its sink says so"
                position = target
            yield target, position

    def _follow(
        self,
        run: ThreadRun,
        gateway: Gateway,
        feed: Feed,
        target: Target,
        position: Position,
        outbox: PositionFile | None,
        *,
        is_new: bool,
    ) -> None:
        """Write what the feed has.

        Args:
            run: this run.
            gateway: takes dead letters.
            feed: has the rows.
            target: takes them.
            position: moves after each batch.
            outbox: keeps each batch until then, None if the target knows no message ids.
            is_new: there is no position yet.
        """
        after = noted = ""
        while not run.is_leaving:
            found = feed.read(READ_SECONDS)
            run.finds_nothing = found is None or not found.rows
            if found is not None:
                run.is_starting = False
                after = found.after
            if found is not None and found.rows:
                batch = found if outbox is None else outbox.begin(found)
                run.batch(partial(self._write, gateway, target, position, batch))
                noted = after
                continue
            if is_new and not noted:
                # Without rows a position is not replaced for each id, but for the first: of a topic
                # without records nothing may be missed from now on.
                noted = after
            if noted:
                # Again: the target may have waited for more rows, or for its time.
                position.note(noted)
        if after:
            position.note(after)

    def _write(
        self, gateway: Gateway, target: Target, position: Position, batch: FeedBatch
    ) -> BatchCount:
        """Write a batch and its dead letters, and move the position."""
        refused = target.write(batch.rows)
        self._keep(gateway, refused)
        position.note(batch.after)
        rows = len(batch.rows)
        return BatchCount(rows, published=rows - len(refused), refused=len(refused))

    def _keep(self, gateway: Gateway, refused: Sequence[Refusal]) -> None:
        """Publish rows that the target refuses to the topic of dead letters."""
        if not refused:
            return
        definition = self.definition
        topic = definition.dead_letters
        if gateway.find_topic(topic) is None:
            described = f"Rows that the target of the forward {definition.name} has refused"
            gateway.put_topic(topic, {"description": described})
        for each in refused:
            letter = msgspec.json.encode(
                {
                    "forward": definition.name,
                    "target": definition.sink.label,
                    "reason": each.reason,
                    "row": each.row.text[:DEAD_ROW_BYTES_MAX].decode(errors="replace"),
                    "bytes": len(each.row.text),
                }
            )
            # The same letter has the same name after a kill.
            digest = hashlib.blake2b(letter, digest_size=16).hexdigest()
            gateway.publish(topic, [letter], idempotency_key=digest)


def forward(path: Path, options: RunOptions, gateway: str | None = None) -> int:
    """Run the forwards of a file until stopped; return the exit code, as `until_stopped` does.

    `gateway` goes before the one that the file names.
    """

    def run(stop: Stop) -> None:
        forwards = [Forward(each, print_line) for each in read_definitions(path, gateway)]
        run_threads(forwards, options, stop, print_line)

    return until_stopped(run)
