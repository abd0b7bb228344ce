"""Topic definitions: documents read and checked, each by itself and against its source."""
