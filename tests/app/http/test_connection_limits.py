"""Which connections are accepted, which wait, and which are closed at once."""

from tidegate.app.figures import ConnectionFigures
from tidegate.app.http.admission import WAITING_CONNECTIONS_MAX, ConnectionLimits
from tidegate.app.streams.connection import Connection


class Guest(Connection):
    """A connection that notes its end."""

    def __init__(self) -> None:
        self.is_aborted = False

    def abort(self) -> None:
        self.is_aborted = True


def entered(admission: ConnectionLimits, count: int, address: str = "192.0.2.1") -> list[Guest]:
    guests = [Guest() for _ in range(count)]
    for connection in guests:
        admission.enter(connection, address)
    return guests


def test_as_many_as_may_are_served() -> None:
    admission = ConnectionLimits(ConnectionFigures(3))
    guests = entered(admission, 4)
    assert [admission.admits(connection) for connection in guests] == [True, True, True, False]


def test_who_waits_at_the_door_is_served_once_there_is_room() -> None:
    admission = ConnectionLimits(ConnectionFigures(1))
    inside, waiting, also_waiting = entered(admission, 3)
    admission.leave(inside)
    assert admission.admits(waiting)
    assert not admission.admits(also_waiting)
    admission.leave(waiting)
    assert admission.admits(also_waiting)


def test_at_a_full_door_the_oldest_is_cut_so_that_a_health_check_gets_through() -> None:
    figures = ConnectionFigures(1)
    admission = ConnectionLimits(figures)
    entered(admission, 1)
    idle = entered(admission, WAITING_CONNECTIONS_MAX)
    [health_check] = entered(admission, 1)
    assert [connection.is_aborted for connection in idle] == [True] + [False] * (
        WAITING_CONNECTIONS_MAX - 1
    )
    assert not health_check.is_aborted
    assert figures.refused == 1


def test_one_address_has_its_own_bound() -> None:
    admission = ConnectionLimits(ConnectionFigures(10), per_address_max=2)
    guests = entered(admission, 3)
    assert [admission.admits(connection) for connection in guests] == [True, True, False]
    [neighbour] = entered(admission, 1, "192.0.2.2")
    assert admission.admits(neighbour)
    admission.leave(guests[0])
    assert admission.admits(guests[2])


def test_who_is_turned_away_is_counted_by_what_there_was_no_room_in() -> None:
    figures = ConnectionFigures(3)
    admission = ConnectionLimits(figures, per_address_max=2)
    _, _, third = entered(admission, 3)
    admission.refuse(third)
    entered(admission, 1, "192.0.2.2")
    [last] = entered(admission, 1, "192.0.2.3")
    admission.refuse(last)
    assert figures.refused_by == {"address": 1, "connections": 1}
    assert figures.refused == 2


def test_one_ipv6_network_is_one_address() -> None:
    admission = ConnectionLimits(ConnectionFigures(10), per_address_max=1)
    addresses = ("2001:db8::1", "2001:db8::2", "2001:db8:0:1::1", "fe80::1%eth0")
    guests = [entered(admission, 1, address)[0] for address in addresses]
    assert [admission.admits(connection) for connection in guests] == [True, False, True, True]


def test_what_comes_goes_and_nothing_is_kept() -> None:
    figures = ConnectionFigures(5)
    admission = ConnectionLimits(figures, per_address_max=3)
    for turn in range(50):
        guests = entered(admission, 8, f"192.0.2.{turn}")
        assert figures.connections == 8
        for connection in guests:
            admission.leave(connection)
    assert figures.connections == 0
    assert all(admission.admits(connection) for connection in entered(admission, 3))


def test_who_was_turned_away_and_lingers_is_counted_once() -> None:
    figures = ConnectionFigures(1)
    admission = ConnectionLimits(figures)
    entered(admission, 1)
    [lingering] = entered(admission, 1)
    assert admission.refusal(lingering, b"/v1/topics", [], ())
    others = entered(admission, WAITING_CONNECTIONS_MAX)
    assert lingering.is_aborted
    assert figures.refused == 1
    for connection in (lingering, *others):
        admission.leave(connection)
    assert not admission._refused
