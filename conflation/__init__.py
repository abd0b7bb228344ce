"""The engine: what is sent, to whom, and when. No I/O, no clock, no tasks.

    frame       one published message: offset, key, payload; immutable
    journal     frames in order, bounded
    options/    the options that a subscriber writes: one table; resolved into a subscription
    boards/     the newest frame of each key, in the order of last change
    operators/  what of a topic goes on a board: a filter, a window, groups
    lanes/      what equal subscriptions share: position, deadline, the batch flushed last;
                a member is one subscription in its lane, normally only a position;
                a pending entry is what a lane holds of a key in addition to the board
    topics/     a topic's numbering, and its feeds: a board with its operator and its lanes
    sessions/   sessions and their subscribers: backfill, changes of lane, queues, accounting
    engine      the API: callers pass the time as `now`, and `schedule` says when to call again
    tracing/    why each message of one subscription was sent, conflated or dropped

Each folder imports only folders above it. A position records what a consumer has seen. Flushes,
joins, resumes and slow sessions all call `board.rows(since)`, each with another position.
"""
