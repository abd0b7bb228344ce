"""Sessions and their streams, from the engine's outputs to bytes on sockets.

    subscribe_request, decisions, subscriptions   a request; what it is granted; a session's own
    session, registry, cursor    a session without the engine; all of them; its event ids
    attach, reader               resume: a reader is attached and subscribes in the engine
    session_transfer             a session moves to another gateway
    documents, view              the JSON of sessions: what opens and changes them; what shows them
    driver, scheduler            the engine's clock and timer; which stream runs next
    event_writer, encoding, sse  what a stream writes next; rows and events as bytes
    notices                      `late` and `progress`; when a heartbeat or progress is due
    outage                       the bus is out: `status` for all streams
    socket_stream, connection    a stream that owns its connection; the deadline of a frozen peer
    fanout, compression          one text for a cohort; a slow reader leaves it here
    backpressure                 a large publish waits for the queues of slow readers
    auto, auto_watch             `conflation=auto`: the interval follows the connection
    polled, polled_pages, poll_request   readers that poll, without a stream

The engine's side of a session is in `conflation/sessions/`, the HTTP of both in `app/http/`.
"""
