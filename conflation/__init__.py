"""The engine: what is sent, to whom, and when. No I/O, no clock, no tasks.

    frame      one published message: offset, key, payload; immutable
    log        frames in order, bounded: a topic's journal, a list lane's backlog
    language/  the options that a subscriber writes, made definite
    boards/    the newest frame of each key, in the order of last change, and the screens
               that decide what stands there: a filter, a window, groups
    lanes/     what equal subscriptions share: position, deadline, the batch flushed last;
               a member is one subscription in its lane: a position, nothing more;
               a slot is what a lane holds of a key beside the board
    topics/    a topic's numbering, and its feeds: a board with the lanes that ask it
    sessions/  one consumer: its seats, what it begins with, how it changes, its queue
    engine     the verbs; time is the argument `now`, the next deadline a return value

Each folder stands on those above it. A position is the answer to "what has this consumer
seen?". Flushes, slow sessions, joins and resumes are one question asked of a board from
different positions.
"""
