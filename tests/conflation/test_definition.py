"""What a topic is when nothing else is said."""

from __future__ import annotations

import pytest

from tidegate.conflation.definition import Definition, History, QueuePolicy


def test_a_topic_is_plain_and_conflates_by_default() -> None:
    definition = Definition(History(10))
    assert not definition.key_spec
    assert definition.policy is QueuePolicy.CONFLATE


def test_a_definition_is_a_value() -> None:
    assert Definition(History(10)) == Definition(History(10))
    assert Definition(History(10)) != Definition(History(11))


def test_there_are_diffusions_four_policies() -> None:
    assert [policy.value for policy in QueuePolicy] == ["off", "conflate", "always", "unsubscribe"]
    with pytest.raises(ValueError, match="never"):
        QueuePolicy("never")
