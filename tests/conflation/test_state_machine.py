"""The engine against naive models, under every order of calls that hypothesis draws.

`CONFIGURATIONS` lists the state machines of tests/conflation/machines. The unit tier plays a few
fixed examples of each; the nightly run searches with fresh seeds.
"""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import RuleBasedStateMachine, run_state_machine_as_test

from tests.conflation.machines.bookmarks import ExpiryMachine, ReplayMachine, ResumeMachine
from tests.conflation.machines.configurations import (
    ChangeMachine,
    EmptiesMachine,
    FocusMachine,
    GroupMachine,
    PlainStatefulMachine,
    StatefulMachine,
    WindowMachine,
)
from tests.conflation.machines.conserved import ConservedMachine, ReceiptMachine
from tests.conflation.machines.engine import EngineMachine
from tests.conflation.machines.movers import MoveMachine
from tests.conflation.machines.policies import PolicyMachine
from tests.support.profiles import examples


@dataclass(frozen=True)
class Configuration:
    """One machine: how many examples the unit tier plays, and of how many calls at most."""

    machine: type[RuleBasedStateMachine]
    examples: int
    calls: int


CONFIGURATIONS = (
    Configuration(EngineMachine, 20, 40),
    Configuration(FocusMachine, 15, 30),
    Configuration(StatefulMachine, 20, 30),
    Configuration(EmptiesMachine, 10, 30),
    Configuration(PlainStatefulMachine, 8, 30),
    Configuration(ChangeMachine, 17, 30),
    Configuration(WindowMachine, 12, 30),
    Configuration(GroupMachine, 10, 30),
    Configuration(ReplayMachine, 10, 25),
    Configuration(ResumeMachine, 12, 25),
    Configuration(ExpiryMachine, 8, 25),
    Configuration(PolicyMachine, 20, 40),
    Configuration(ConservedMachine, 10, 30),
    Configuration(ReceiptMachine, 10, 30),
    Configuration(MoveMachine, 10, 30),
)

pytestmark = [
    pytest.mark.rule("interval-1", "interval-2", "interval-3", "resume-6", "resume-8"),
    pytest.mark.rule("change-1", "change-2", "change-3", "removal-1", "removal-2", "removal-3"),
    pytest.mark.rule("queue-3", "queue-4", "queue-5", "queue-6", "queue-7"),
    pytest.mark.rule("queue-8", "queue-9", "queue-10", "queue-11", "merge-4"),
    pytest.mark.rule("trace-1"),
]
each_configuration = pytest.mark.parametrize(
    "configuration", CONFIGURATIONS, ids=lambda found: found.machine.__name__
)


@each_configuration
def test_fixed_examples(configuration: Configuration) -> None:
    fixed = settings(
        max_examples=configuration.examples,
        stateful_step_count=configuration.calls,
        phases=[Phase.generate, Phase.shrink],
        derandomize=True,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
    )
    run_state_machine_as_test(configuration.machine, settings=fixed)


@pytest.mark.nightly
@each_configuration
def test_search(configuration: Configuration) -> None:
    search = examples(configuration.examples, steps=configuration.calls)
    run_state_machine_as_test(configuration.machine, settings=search)


def test_the_first_message_is_known_after_several_changes() -> None:
    """What an early lane did not report reached a later one behind what that had seen since."""
    machine = ReceiptMachine()
    machine.begin(picks=[(1, 0, False)])
    machine.publish(letters=[1], pick=0)
    machine.publish(letters=[0], pick=0)
    machine.change(pick=0, to=1)
    machine.change(pick=0, to=0)
    machine.publish(letters=[0], pick=0)
    machine.remove(keys=["a"], pick=0)
    machine.change(pick=0, to=12)
    machine.publish(letters=[0], pick=0)
    machine.come_and_go(keys="ABaa", pick=0, step="0ms")
    machine.teardown()


def test_what_came_and_left_before_a_change_of_filter_is_reported_after_it() -> None:
    machine = ChangeMachine()
    machine.begin(picks=[0, 0, 49, 0])
    machine.publish(exempt=0, letters=[45, 0])
    machine.join_another(kind=0, pick=0)
    machine.change(pick=37, to=1)
    machine.publish(exempt=0, letters=[0])
    machine.teardown()


def test_an_empty_message_is_not_due_behind_an_exempt_row() -> None:
    """The exempt row changed what the client holds, so the value before it looked like news."""
    machine = StatefulMachine()
    machine.begin(picks=[3, 0])
    machine.traffic(letters=[0], step_ns=1_000_000_000)
    machine.publish(exempt=0, letters=[0])
    machine.publish(exempt=7, letters=[39])
    machine.advance(step_ns=1_000_000_000)
    machine.publish(exempt=0, letters=[24])
    machine.advance(step_ns=100_000_000)
    machine.teardown()


def test_who_joins_while_a_repeated_value_is_held_does_not_make_it_news_for_others() -> None:
    machine = StatefulMachine()
    machine.begin(picks=[3, 3])
    machine.traffic(letters=[0], step_ns=1_000_000_000)
    machine.advance(step_ns=1_000_000_000)
    machine.traffic(letters=[0], step_ns=1_000_000)
    machine.publish(exempt=0, letters=[0])
    machine.join_another(kind=0, pick=0)
    machine.publish(exempt=0, letters=[0])
    machine.teardown()


def test_deltas_of_who_leaves_are_full_values_and_announced_as_those() -> None:
    machine = PolicyMachine()
    machine.begin(
        ranks=[0, 0, 0, 0],
        replaces=False,
        tidies=set(),
        limits=0,
        lane_specs=[(0, 0, 0), (2, 0, 1), (2, 0, 0)],
    )
    machine.tune(conflated=False, limits=5, session=2)
    machine.traffic(bursts=[(0, [0, 0])], served=True)
    machine.unsubscribe(reader=1, session=1)
    machine.traffic(bursts=[(0, [0, 0, 0, 0])], served=False)
    machine.unsubscribe(reader=0, session=1)
    machine.teardown()
