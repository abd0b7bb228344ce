"""`tidegate forward`: topics at their interval to other systems, without Spark or Java.

    definition   `[forward.NAME]` of a TOML file, parsed strictly
    feed         the subscription of a topic, as batches of rows with a position
    position     the file that says how far a target is, if the target does not
    target       what a sink is to the rest: rows in, refused rows out
    delivery     one topic in a thread: read, write, note the position; all of a file, supervised

    sinks        a module for each kind of sink: its table `sink` and its target

How to write a sink. Add a module to `sinks/` with a frozen dataclass that holds what the table says
(a `SinkDefinition`), a function `read_sink(table, folder)` that returns it, and a class that writes
(a `Target`). List the kind in `KINDS` of `definition.py` with its extra.

`write` returns when the target has the rows for good. The position is noted after that, so after a
kill the same rows are written again. A target that can store both in one step is a
`PositionedTarget`: its `note` makes the rows visible, and each row arrives once. While `write`
waits, nothing is read: the gateway conflates.
"""
