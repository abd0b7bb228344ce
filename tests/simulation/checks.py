"""Judges a record: every client's, then what must hold of the whole once all is quiet."""

from __future__ import annotations

from tests.simulation.client import Client
from tests.simulation.client_model import ClientModel, alike
from tests.simulation.deliveries import Broken, Opened, require
from tests.simulation.ledger import OWN, Entry
from tests.simulation.simulation import Record
from tests.simulation.timing import TimingChecks
from tidegate.conflation.sessions.accounting import TopicStats


def check(record: Record) -> None:
    """All invariants.

    Raises:
        Broken: with the invariant and the client.
    """
    for complaint in record.complaints:
        raise Broken(complaint.partition(":")[0], complaint)
    models = []
    for client in record.clients:
        model = ClientModel(client, record.ledgers)
        models.append(model)
        try:
            model.replay()
            for seen in model.seen:
                TimingChecks(seen, client.plan.subscription, record.settled_ns).check()
            check_settled(record, client, model)
        except Broken as broken:
            number, subscription = client.plan.number, client.plan.subscription
            asked = f"{subscription.topic.policy} {subscription.command} {subscription.options}"
            told = f"client {number} ({asked}"
            raise Broken(
                broken.invariant,
                f"{told} {subscription.form} {subscription.filter_text}): {broken}",
            ) from None
    check_ledger(record)
    check_accounts(record, models)


def check_ledger(record: Record) -> None:
    """What was accepted was applied."""
    for epoch in record.epochs.values():
        lost = [entry.offset for entry in record.ledgers[epoch].entries if entry.at_ns is None]
        require(not lost, "I6", f"accepted and never applied: {lost[:3]}")


def check_settled(record: Record, client: Client, model: ClientModel) -> None:
    """I3 and I20: whoever was not sent away is here, and holds what there is."""
    subscription = client.plan.subscription
    if client.is_done:
        removed = any(what.startswith("again") for _, what in record.plan.troubles)
        sent_away = removed or subscription.topic.policy == "unsubscribe"
        require(sent_away, "I20", "it was told not to come back")
        return
    connection = client.connections[-1]
    require(connection.status == 200 and model.seen, "I20", f"not served: {connection.status}")
    seen = model.seen[-1]
    at_ns = record.settled_ns
    is_there = seen.connection is connection and (
        connection.ended_ns is None or connection.ended_ns >= at_ns
    )
    require(is_there, "I20", "it is not connected")
    heartbeat_ns = {"500ms": 5 * 10**8, "5s": 5 * 10**9}[str(record.plan.settings["heartbeat"])]
    last_ns = max(sent.wrote_ns or 0 for sent in seen.sents)
    require(at_ns - last_ns <= 2 * heartbeat_ns, "I20", "neither data nor a heartbeat")
    require(
        seen.ledger.epoch == record.epochs[subscription.topic.name], "I25", "it is in another epoch"
    )
    require(seen.cut is not None, "I20", "its opening has not ended")
    if subscription.topic.keyed or subscription.interval_ns:
        check_replica(model, seen)
    else:
        told = [e for e in seen.ledger.after(seen.cut or 0) if subscription.matches(e.value)]
        last = [row.entry for row in seen.rows if row.live]
        require(not told or (last and last[-1] is told[-1]), "I3", "the last message is missing")


def check_replica(model: ClientModel, seen: Opened) -> None:
    """I3: each key as it was published last."""
    subscription, ledger = model.subscription, seen.ledger
    for own in ledger.by_own:
        newest = ledger.newest(own, len(ledger.entries))
        assert newest is not None
        there = not newest.gone and subscription.matches(newest.value)
        held = model.holds.get(own)
        if there and (model.knows_all or newest.offset > model.since):
            require(held is not None, "I3", f"{own} is missing")
            assert held is not None
            require(alike(held[1], newest), "I3", f"{own} is {held[0]}, not {newest.offset}")
        elif held is not None and subscription.oof:
            require(there, "I8", f"{own} has left")


def check_accounts(record: Record, models: list[ClientModel]) -> None:
    """I17: the identity, of topics, of sessions, and of rows that were really sent."""
    assert record.stats is not None
    assert record.final_stats is not None
    for stats in (record.stats, record.final_stats):
        for topic in stats.topics:
            check_identity(topic)
    last = max(connection.gateway for client in record.clients for connection in client.connections)
    for topic in record.final_stats.topics:
        if topic.topic.startswith(OWN):
            continue
        here = [
            seen
            for model in models
            for seen in model.seen
            if seen.connection.gateway == last
            and seen.ledger.epoch == record.epochs[topic.topic]
            and seen.ledger.topic == topic.topic
        ]
        sent = sum(row.live and row.op != "oof" for seen in here for row in seen.rows)
        require(topic.delivered == sent, "I17", f"{topic.delivered} delivered, {sent} sent")
        require(topic.subscriptions == topic.lanes == 0, "I17", "lanes are left behind")
    require(record.final_stats.sessions == 0, "I17", "sessions are left behind")
    for model in models:
        if model.seen and (figures := record.sessions.get(model.seen[-1].session)) is not None:
            [row] = figures.subscriptions
            matched = matching_after(model, model.seen[-1])
            require(row.matched == len(matched), "I17", f"{row.matched} of {len(matched)} matched")
            require(row.waiting == 0, "I17", "something waits")


def check_identity(topic: TopicStats) -> None:
    """matched = delivered + conflated + dropped + waiting, none of them below zero."""
    parts = (topic.delivered, topic.conflated, topic.dropped, topic.waiting)
    require(topic.matched == sum(parts), "I17", f"{topic.matched} is not {parts}")
    require(min(parts) >= 0, "I17", f"below zero: {parts}")


def matching_after(model: ClientModel, seen: Opened) -> list[Entry]:
    """The messages that a connection's subscription has matched."""
    entries = seen.ledger.after(seen.cut or 0)
    return [
        entry for entry in entries if not entry.gone and model.subscription.matches(entry.value)
    ]
