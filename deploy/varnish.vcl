vcl 4.1;

# Varnish as a cache of polled streams (GET /v1/topics/{topic}/stream): of all who ask for the same rows
# from the same position, one request reaches the gateway.
# The gateway's settings: trusted_proxies = ["127.0.0.1"], allowed_hosts = ["gateway.example"].

backend gateway {
    .host = "127.0.0.1";
    .port = "8080";
    .first_byte_timeout = 60s; # a gateway holds a long poll for 20 s
    .between_bytes_timeout = 60s; # four heartbeats
}

sub vcl_recv {
    # Set, and not appended to: what a client sends of these is its own word.
    set req.http.X-Forwarded-For = client.ip;
    unset req.http.X-Forwarded-Proto;
    unset req.http.X-Forwarded-Host;
    if (req.url !~ "^/v1/topics/[^/]+/stream(\?|$)" || req.url ~ "[?&]live=sse(&|$)") {
        return (pass); # events go on at once
    }
    if (req.method != "GET") {
        return (pass); # HEAD says where the end is, and GET where its page ends
    }
    # Requests with a token or a cookie are passed, as Varnish does by itself.
}

sub vcl_backend_response {
    # How long an answer may be kept is in its Cache-Control, and nothing older is served.
    set beresp.grace = 0s;
    set beresp.keep = 0s;
}
