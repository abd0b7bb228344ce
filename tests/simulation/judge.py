"""Judges a story: every client's, then what must hold of the whole once all is quiet."""

from __future__ import annotations

from tests.simulation.client import Client
from tests.simulation.follow import Follow, alike
from tests.simulation.ledger import OWN, Entry
from tests.simulation.pace import Pace
from tests.simulation.told import Broken, Seen, require
from tests.simulation.world import Story
from tidegate.conflation.sessions.accounting import TopicStats


def judge(story: Story) -> None:
    """All invariants.

    Raises:
        Broken: with the invariant and the client.
    """
    for complaint in story.complaints:
        raise Broken(complaint.partition(":")[0], complaint)
    follows = []
    for client in story.clients:
        follow = Follow(client, story.lives)
        follows.append(follow)
        try:
            follow.follow()
            for seen in follow.seen:
                Pace(seen, client.plan.wish, story.settled_ns).check()
            check_settled(story, client, follow)
        except Broken as broken:
            number, wish = client.plan.number, client.plan.wish
            told = f"client {number} ({wish.topic.policy} {wish.command} {wish.options}"
            raise Broken(
                broken.invariant, f"{told} {wish.form} {wish.filter_text}): {broken}"
            ) from None
    check_ledger(story)
    check_accounts(story, follows)


def check_ledger(story: Story) -> None:
    """What was accepted was applied."""
    for epoch in story.epochs.values():
        lost = [entry.offset for entry in story.lives[epoch].entries if entry.at_ns is None]
        require(not lost, "I6", f"accepted and never applied: {lost[:3]}")


def check_settled(story: Story, client: Client, follow: Follow) -> None:
    """I3 and I20: whoever was not sent away is here, and holds what there is."""
    wish = client.plan.wish
    if client.is_done:
        removed = any(what.startswith("again") for _, what in story.plan.troubles)
        sent_away = removed or wish.topic.policy == "unsubscribe"
        require(sent_away, "I20", "it was told not to come back")
        return
    visit = client.visits[-1]
    require(visit.status == 200 and follow.seen, "I20", f"not served: {visit.status}")
    seen = follow.seen[-1]
    at_ns = story.settled_ns
    is_there = seen.visit is visit and (visit.ended_ns is None or visit.ended_ns >= at_ns)
    require(is_there, "I20", "it is not connected")
    heartbeat_ns = {"500ms": 5 * 10**8, "5s": 5 * 10**9}[str(story.plan.settings["heartbeat"])]
    last_ns = max(sent.wrote_ns or 0 for sent in seen.sents)
    require(at_ns - last_ns <= 2 * heartbeat_ns, "I20", "neither data nor a heartbeat")
    require(seen.life.epoch == story.epochs[wish.topic.name], "I25", "it is in another epoch")
    require(seen.cut is not None, "I20", "its opening has not ended")
    if wish.topic.keyed or wish.interval_ns:
        check_replica(follow, seen)
    else:
        told = [e for e in seen.life.after(seen.cut or 0) if wish.matches(e.value)]
        last = [row.entry for row in seen.rows if row.live]
        require(not told or (last and last[-1] is told[-1]), "I3", "the last message is missing")


def check_replica(follow: Follow, seen: Seen) -> None:
    """I3: each key as it was published last."""
    wish, life = follow.wish, seen.life
    for own in life.by_own:
        newest = life.newest(own, len(life.entries))
        assert newest is not None
        there = not newest.gone and wish.matches(newest.value)
        held = follow.holds.get(own)
        if there and (follow.knows_all or newest.offset > follow.since):
            require(held is not None, "I3", f"{own} is missing")
            assert held is not None
            require(alike(held[1], newest), "I3", f"{own} is {held[0]}, not {newest.offset}")
        elif held is not None and wish.oof:
            require(there, "I8", f"{own} has left")


def check_accounts(story: Story, follows: list[Follow]) -> None:
    """I17: the identity, of topics, of sessions, and of rows that were really sent."""
    assert story.stats is not None
    assert story.final_stats is not None
    for stats in (story.stats, story.final_stats):
        for topic in stats.topics:
            check_identity(topic)
    last = max(visit.gateway for client in story.clients for visit in client.visits)
    for topic in story.final_stats.topics:
        if topic.topic.startswith(OWN):
            continue
        here = [seen for follow in follows for seen in follow.seen
                if seen.visit.gateway == last and seen.life.epoch == story.epochs[topic.topic]
                and seen.life.topic == topic.topic]  # fmt: skip
        sent = sum(row.live and row.op != "oof" for seen in here for row in seen.rows)
        require(topic.delivered == sent, "I17", f"{topic.delivered} delivered, {sent} sent")
        require(topic.subscriptions == topic.lanes == 0, "I17", "lanes are left behind")
    require(story.final_stats.sessions == 0, "I17", "sessions are left behind")
    for follow in follows:
        if follow.seen and (figures := story.sessions.get(follow.seen[-1].session)) is not None:
            [row] = figures.subscriptions
            matched = matching_after(follow, follow.seen[-1])
            require(row.matched == len(matched), "I17", f"{row.matched} of {len(matched)} matched")
            require(row.waiting == 0, "I17", "something waits")


def check_identity(topic: TopicStats) -> None:
    """matched = delivered + conflated + dropped + waiting, none of them below zero."""
    parts = (topic.delivered, topic.conflated, topic.dropped, topic.waiting)
    require(topic.matched == sum(parts), "I17", f"{topic.matched} is not {parts}")
    require(min(parts) >= 0, "I17", f"below zero: {parts}")


def matching_after(follow: Follow, seen: Seen) -> list[Entry]:
    """The messages that a connection's subscription has matched."""
    entries = seen.life.after(seen.cut or 0)
    return [entry for entry in entries if not entry.gone and follow.wish.matches(entry.value)]
