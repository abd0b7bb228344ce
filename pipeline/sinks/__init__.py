"""Where what a stream sends goes, once."""
