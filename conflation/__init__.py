"""The engine: what is sent, to whom, and when. No I/O, no clock, no tasks.

    frame       one published message: offset, key, payload; immutable
    journal     frames in order, bounded
    options/    the options that a subscriber writes: one table, decided to a subscription
    boards/     the newest frame of each key, in the order of last change
    operators/  what of a topic goes on a board: a filter, a window, groups
    lanes/      what equal subscriptions share: position, deadline, the batch flushed last;
                a member is one subscription in its lane: a position, no queue;
                a pending entry is what a lane holds of a key beside the board
    topics/     a topic's numbering, and its feeds: a board with its operator and its lanes
    sessions/   sessions and their subscribers: backfill, changes of lane, queues, accounting
    engine      the verbs; time is the argument `now`, the next deadline a return value
    tracing/    why each message of one subscription was sent, conflated or dropped

Each folder imports only those above it. A position answers: what has this consumer seen? Flushes,
slow sessions, joins and resumes are one question asked of a board from different positions.
"""
