"""Sessions and their subscribers.

    session, subscriber       one client; one of its subscriptions in one topic, and its `take`
    registry                  all sessions, cohorts, and announcements to the driver
    lane_assignment           subscribe, join a lane, change lanes, end
    backfill, rows            snapshot, replay and resume after a bookmark; a cursor over such rows
    openings                  boards and rows that are made in steps
    lane_change               what is sent between the lanes of old and new options
    queue_limits, drain       a slow reader's queue is full; the queue of an ended subscription
    accounting                matched = delivered + conflated + dropped + waiting

The gateway's side of a session is in `app/streams/`.
"""
