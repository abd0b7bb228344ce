"""What a definition file asks for."""
