"""How much a subject, a topic and the gateway may have."""
