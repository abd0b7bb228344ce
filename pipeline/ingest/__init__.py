"""`tidegate ingest`: messages of brokers, files and sockets into topics, without Spark or Java.

    connector    what a source is: records with positions in, acknowledged batches out
    definition   `[ingest.NAME]` of a TOML file, parsed strictly
    payloads     a record's bytes as a message, a removal, nothing, or a dead letter
    encoding     the fields that say how payloads are encoded, and their decoders:
    avro         payloads and keys in Avro as JSON
    protobuf     payloads and keys in Protobuf as JSON; values in protobuf_values
    schema_registry  what both ask for schemas
    publishing   batches published once each, by the numbers of their records; dead letters
    intake       one source in a thread: read, publish, acknowledge; all of a file, supervised

    sources      a module for each kind of source: its table `source` and its connector

How to write a connector. Add a module to `sources/` with a frozen dataclass that holds what the
table says (a `SourceDefinition`), a function `read_source(table, folder)` that returns it, and a
class that reads (a `Connector`). Import the broker's library at the top of the module: it is
loaded only if a file names its kind. List the kind in `KINDS` of `definition.py` with its extra.

A connector reads in its own thread and only when it is asked, so that a gateway that is slow or
absent stops the reading. It gives each record a `number` that rises within a partition, if the
source has positions: it begins after the number that the gateway knows, and what is read again is
published once. Without positions it acknowledges to its broker in `acknowledge`, which is called
after the gateway has the batch.
"""
