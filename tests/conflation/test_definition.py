"""Definitions of topics for the engine: their defaults, and the queue policies."""

from __future__ import annotations

import pytest

from tidegate.conflation.definition import Definition, History, QueuePolicy


def test_by_default_a_topic_has_no_key_and_conflates() -> None:
    definition = Definition(History(10))
    assert not definition.key_spec
    assert definition.policy is QueuePolicy.CONFLATE


def test_definitions_with_equal_fields_are_equal() -> None:
    assert Definition(History(10)) == Definition(History(10))
    assert Definition(History(10)) != Definition(History(11))


def test_the_queue_policies_are_the_four_of_diffusion() -> None:
    assert [policy.value for policy in QueuePolicy] == ["off", "conflate", "always", "unsubscribe"]
    with pytest.raises(ValueError, match="never"):
        QueuePolicy("never")
