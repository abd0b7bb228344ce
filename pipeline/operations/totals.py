"""What a stream did since its command was started."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Totals:
    """Counts: `repeated` are rows that an earlier try had written, `refused` no messages at all."""

    batches: int = 0
    messages: int = 0
    published: int = 0
    repeated: int = 0
    refused: int = 0

    def with_batch(
        self, *, messages: int, published: int, repeated: int = 0, refused: int = 0
    ) -> Totals:
        """These, and one batch more."""
        return Totals(
            batches=self.batches + 1,
            messages=self.messages + messages,
            published=self.published + published,
            repeated=self.repeated + repeated,
            refused=self.refused + refused,
        )
