"""Conflation at Spark's scale: streams from files or topics, the newest of each key to a topic.

    command      the verbs of `python -m tidegate.pipeline`
    definitions  TOML files of streams, parsed strictly
    spark        the one SparkSession, its Java, and what executors need
    format       `spark.readStream.format("tidegate")` and `df.writeStream.format("tidegate")`
    sources      a stream's messages, from any source, as one kind of frame
    columns      messages as columns: read, filtered, conflated a block at a time
    views        groups, projections and joins of two topics, as records that change
    sinks        a topic or Parquet files, written exactly once
    streams      running queries: batches, checkpoints, start, stop
    operations   supervision of running queries: restarts, status, metrics, signals
    ingest       sources of brokers, files and sockets, without Spark
    archive      journals kept as Parquet, published again, and asked for a past time
    planner      the cost of intervals: one pass over a history for many choices

    connection, redis_server   a gateway and a Redis, asked again while they do not answer
    atomic_files               files that are replaced in one step; locks on files

No module imports pyspark before Spark is needed, so that the command line is quick.
"""
