"""Conflation at Spark's scale: streams from files or topics, the newest of each key to a topic.

    definitions  TOML files of streams, parsed strictly
    datasource   `spark.readStream.format("tidegate")` and `df.writeStream.format("tidegate")`
    sources      where a stream's messages come from, as one kind of frame
    columns      messages as columns: read, filtered, conflated a block at a time
    streams      running queries: which way a conflation goes, checkpoints, start, stop
    views        groups, projections and joins of two topics, as records that change
    sinks        where what goes out is written, once
    operations   running queries watched over: started again, told of, counted, ended
    archive      journals kept as Parquet, published again, and asked for a past time
    planner      what an interval would cost: one pass over a history for many choices

    session, jvm, executors   the one SparkSession, its Java, what other machines need
    connection, redisserver   who is asked, and asked again while they are out
    lasting                   files that are there as a whole or not at all
    bookmark                  positions of a topic: `<epoch>-<position>`
    merging, packages         functions that users register; jars that a source needs
    command                   the verbs of `python -m tidegate.pipeline`

Nothing here imports pyspark before Spark is needed, so that the command line stays quick.
"""
