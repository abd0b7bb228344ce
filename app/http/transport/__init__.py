"""What is between the socket and HTTP: TLS, certificates, and the proxies that are believed."""
