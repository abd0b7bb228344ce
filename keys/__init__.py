"""The parts of a message that matter: field paths, key specs, canonical keys, strict JSON text.

Everything here is pure: texts are parsed to small immutable trees and closures. A field's value is
its JSON text, so a number keeps every digit of its publisher, and only needed fields are decoded.

    errors        the exception tree
    text          durations, sizes, times, rates and bookmarks as texts
    jsontext      strict RFC 8259 syntax, members and items, equality, exact numbers
    lines         NDJSON lines: many messages, checked and keyed together
    path          `/a/b` and `$.a.b[0]` as one tuple of steps
    spec          `[/a,/b]`, the ordered paths of a key, compiled to `payload -> canonical key`
    filter        AMPS's filter language: `/px > 100 AND /side IN ('B', 'S')` to a predicate
    select        `[-/,+/a]`, the fields that are kept
    order         `/a DESC,/b`, the order of rows
    projection    `[/id,SUM(/qty) AS /total]` by `[/id]`, one row for each group
    reducers      `[/px:max@hi,/qty:sum]`, messages merged into one by monoids
    merging       registered functions: two messages merged into one, or kept apart
    patch         RFC 7396 merge patches: made, applied, composed
    archived      names of an archive's files
    python_values values of Python as JSON text
"""
