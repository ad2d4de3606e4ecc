"""What the wire sends for "nothing" is missing: to conditions, and in the items of an answer."""

from tests.ground.stores import Store
from tests.query_api.tql.conftest import Asked


def test_an_event_outside_a_span_has_no_span(told: Store) -> None:
    asked = Asked(told.client)

    events = asked.page('event.kind == "end_of_stream"')

    assert {event["span_id"] for event in events.items} == {None}
    assert asked.page('event.kind == "end_of_stream" and missing(event.span_id)').total == events.total
