"""Topic definitions: documents read, checked and put in relation to one another."""
