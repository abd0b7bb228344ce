"""Bounds of what a store keeps of senders, each of one topic."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from app.problems import Problem
from app.settings import Settings

RETRY_AFTER = {"Retry-After": "60"}


@dataclass(frozen=True, slots=True)
class Bounds:
    """How many stages and bytes in them, `Idempotency-Key`s of a day, and numbered producers."""

    stages_max: int = 10_000
    staged_bytes_max: int = 1 << 30
    retry_keys_max: int = 1_000_000
    producers_max: int = 100_000

    @classmethod
    def of(cls, settings: Settings) -> Self:
        """As settings have them."""
        return cls(
            settings.stages_max,
            settings.staged_bytes_max,
            settings.retry_keys_max,
            settings.producers_max,
        )

    def check_stages(self, count: int, size_bytes: int) -> None:
        """Whether there may be so many stages of so many bytes.

        Raises:
            Problem: limit-reached.
        """
        if count > self.stages_max or size_bytes > self.staged_bytes_max:
            raise no_room_for_stages()

    def check_retry_keys(self, count: int) -> None:
        """Whether so many `Idempotency-Key`s may be known.

        Raises:
            Problem: limit-reached.
        """
        if count > self.retry_keys_max:
            raise no_room_for_retry_keys()

    def check_producers(self, count: int) -> None:
        """Whether so many producers may be known.

        Raises:
            Problem: limit-reached.
        """
        if count > self.producers_max:
            raise no_room_for_producers()


def no_room_for_stages() -> Problem:
    """What whoever stages one more is told."""
    detail = "The topic has as many stages as may be, or as many bytes in them: commit some."
    return Problem("limit-reached", detail, headers=RETRY_AFTER)


def no_room_for_retry_keys() -> Problem:
    """What whoever sends one more is told."""
    detail = "The topic has had as many Idempotency-Keys in 24 hours as may be."
    return Problem("limit-reached", detail, headers=RETRY_AFTER)


def no_room_for_producers() -> Problem:
    """What one more is told."""
    detail = "The topic has as many numbered producers as may be: names are for ever."
    return Problem("limit-reached", detail, headers=RETRY_AFTER)
