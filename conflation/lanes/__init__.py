"""Lanes: what equal subscriptions share; each flush is encoded once for all members.

    lane, member, cohort      a lane; one subscription in it; members with equal progress
    interval, catch_up        the newest of each key, from the board; rows for a slow reader
    stateful                  with pending entries: receipts, deltas, reducers, `pace=key`
    pending, part             what is held of a key; the messages of an entry between two joins
    flushes, missed           flushes that members are behind; their rows
    delta, accumulate         merge patches; messages combined by reducers and mergers
    every_message             `conflation=none`, and the conflated queue of a slow reader

`conflation/topics/feed.py` makes lanes, and gives them what changes on their board.
"""
