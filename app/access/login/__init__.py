"""The login of browsers at an identity provider, and its cookies."""
