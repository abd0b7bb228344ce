"""Sources and sinks outside of the gateway: Spark streams, `tidegate ingest`, `tidegate forward`.

    command      the verbs of `python -m tidegate.pipeline`
    errors       the exceptions, each with its exit code
    definitions  TOML files of streams, parsed strictly
    spark        the one SparkSession, its Java, and what executors need
    format       `spark.readStream.format("tidegate")` and `df.writeStream.format("tidegate")`
    sources      the sources of Spark streams, all read as DataFrames of one schema
    files        blocks of CSV and Parquet files as messages
    columns      messages as columns: read, filtered, conflated a block at a time
    json_fields  top-level fields of JSON messages as columns: filtered, reduced, written back
    views        groups, projections and joins of two topics, as records that change
    sinks        a topic or Parquet files, written exactly once
    streams      running queries: batches, checkpoints, start, stop
    operations   supervision of running queries: restarts, status, metrics, signals
    archive      journals kept as Parquet, published again, and queried for a past time
    planner      the cost of intervals: one pass over a history for many choices

    ingest       brokers, files and sockets into topics, without Spark
    forward      topics to brokers, files, Redis and webhooks, without Spark

    intervals                  the engine's rules of intervals, over columns of messages
    connection                 a gateway, with retries while it does not answer
    redis_server, kafka_cluster, mqtt_broker, nats_server   the same for these servers
    atomic_files               files that are replaced in one step; locks on files

pyspark is imported only when Spark is needed, so that the command line starts fast.
"""
