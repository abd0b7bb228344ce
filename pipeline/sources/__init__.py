"""Sources: topics, brokers and files from which a stream reads messages."""
