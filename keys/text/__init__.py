"""Values that people write, each parsed and printed in one place, for engine, app and pipeline.

    duration  `500ms`
    size      `8MiB`
    time      `2025-09-09T17:19:19Z`
    rate      `10X`, `1000`, `500KB`
    bookmark  `<epoch>-<position>`

Every parser takes the position of its text in the request, and raises `TextInvalid` with the
position of the first wrong character.
"""
