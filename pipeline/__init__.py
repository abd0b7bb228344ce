"""Conflation at Spark's scale: streams from files or topics, the newest of each key to a topic.

    definitions  TOML files of streams, parsed strictly
    datasource   `spark.readStream.format("tidegate")` and `df.writeStream.format("tidegate")`
    sources      where a stream's messages come from, as one kind of frame
    columns      messages as columns: read, filtered, conflated a block at a time
    streams      running queries: which way a conflation goes, checkpoints, start, stop
    operations   running queries watched over: started again, told of, counted
    sinks        where what goes out is written, once
    planner      what an interval would cost: one pass over a history for many choices

    executors    what other machines need to work for a stream
    session      the one SparkSession, and what it needs of Java
    gateway      the gateway's public HTTP API, as far as a stream needs it
    bookmark     positions of a topic: `<epoch>-<position>`

Nothing here imports pyspark before Spark is needed, so that the command line stays quick.
"""
