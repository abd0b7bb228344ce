"""Publishers: messages in batches, each of which is sent in order and counts once."""
