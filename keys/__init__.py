"""What of a message matters: field paths, key specs, canonical keys, strict JSON text.

Everything here is pure: text in, small immutable trees and closures out. A field's value
is its JSON text, so a number keeps every digit its publisher wrote and nothing is decoded
that nobody looks at.

    path      `/a/b` and `$.a.b[0]` become one tuple of steps
    spec      `[/a,/b]`: the ordered paths of a key
    canonical one spelling for each key value: 1, 1.0 and 1e0 are one, 1, "1" and true three
    extract   a spec compiled to `payload -> canonical key`
    jsontext  strict RFC 8259 syntax, without building a value
    filter    AMPS's filter language: `/px > 100 AND /side IN ('B', 'S')` to a predicate
    number    numbers exactly: one spelling, order, sums
    value     a text's members and items, and whether two texts say the same
    select    `[-/,+/a]`: which fields are kept
    order     `/a DESC,/b`: what comes first
    reducers  `[/px:max@hi,/qty:sum]`: messages merged into one
    merging   registered functions: two messages merged into one, or kept apart
    monoids   what a reducer keeps of a field, and how two of them become one
    aggregates what a group's values come to: SUM, AVG, COUNT_DISTINCT, ...
    projection `[/id,SUM(/qty) AS /total]` by `[/id]`: a row for each group
    patch     RFC 7396 merge patches: made, applied, composed
    text      durations, sizes, times, rates and bookmarks, as people write them
"""
