"""Topics as the gateway has them: catalog, publishing, derived topics, expiry."""
