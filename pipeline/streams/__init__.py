"""Running queries: a source conflated into a sink, from a checkpoint on."""
