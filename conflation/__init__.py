"""The engine: what is sent, to whom, and when. No I/O, no clock, no tasks.

    frame    one published message: offset, key, payload; immutable
    board    the newest frame of each key, in the order of last change
    log      frames in order, bounded: a topic's journal, a list lane's backlog
    screen   what of a topic stands on a board: a filter, a window, groups
    feed     one board of a topic with the lanes that ask it
    slot     what a lane holds of a key beside the board: counts, deltas, merged values
    lane     what equal subscriptions share: position, deadline, the batch flushed last
    member   one subscription in its lane: a position, nothing more
    session  one consumer: its members, and the control events it is owed
    engine   the verbs; time is the argument `now`, the next deadline a return value

A position is the answer to "what has this consumer seen?". Flushes, slow sessions, joins
and resumes are one question asked of a board from different positions.
"""
