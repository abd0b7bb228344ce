"""Conflation at Spark's scale: streams from files or topics, the newest of each key to a topic.

    definition  a TOML file of streams, parsed strictly
    session     the one SparkSession, and what it needs of Java
    gateway     the gateway's public HTTP API, as far as a stream needs it
    bookmark    positions of a topic: `<epoch>-<position>`
    source      `spark.readStream.format("tidegate")`
    files       NDJSON files as a stream, with the order of their lines
    conflate    the newest of each key of a micro-batch, combined on the executors
    sink        tasks stage the winners, the driver commits them to a topic in one step
    checkpoint  what keeps a restart from continuing somebody else's work
    stream      one definition put together as a running query
    run         starts the streams of a file, reports, stops

    intervals   which messages become one delivery, over columns
    reading     keys and times of many lines at once
    history     NDJSON, gzip, folders, Parquet: lines in order of publication
    blocks      many messages as one row of a shuffle
    planning    what choices would have cost, in one pass; tally, choices, chart say the answer
    conflator   blocks of messages in, deliveries out, what is held carried between
    filtering   a filter over many messages at once
    deliveries  the deliveries of recorded messages, in place or by shards
    plans       which of these ways a conflation goes
    plan        the command `tidegate pipeline plan`

Nothing here imports pyspark before Spark is needed, so that the command line stays quick.
"""
