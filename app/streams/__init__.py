"""From the engine to streams: the driver with the only clock, encoding, notices."""
