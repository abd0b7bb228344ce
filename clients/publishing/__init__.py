"""Publishers: messages collected to batches, which are sent in order and count once."""
