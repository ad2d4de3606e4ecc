"""Every metric of the ingest tiers, one constant each, in base units, never labelled by run or rank."""

from prometheus_client import Counter, Gauge, Histogram, start_http_server

from rankscope_ingest.addresses import host_and_port
from rankscope_ingest.errors import CannotStart

BATCHES = Counter(
    "rankscope_ingest_batches",
    "Batches the gateway answered, by result: accepted, duplicate, expected, conflict, busy, refused, denied, "
    "unavailable, failed.",
    ["result"],
)
ROWS_ACCEPTED = Counter("rankscope_ingest_rows_accepted", "Rows of the batches accepted into the broker.")
BYTES_ACCEPTED = Counter("rankscope_ingest_accepted_bytes", "Payload bytes accepted into the broker.")
RANK_CONFLICTS = Counter("rankscope_ingest_rank_conflicts", "Second trainers of a rank that sent data.")
DEAD_LETTERS = Counter(
    "rankscope_ingest_dead_letters",
    "Batches that cannot go on, by stage (conflict, parse) and result: kept, no_room.",
    ["stage", "result"],
)
CALLS_REFUSED = Counter(
    "rankscope_ingest_calls_refused",
    "Calls that were not let in, by reason: unauthenticated, denied, busy.",
    ["reason"],
)
STREAMS = Gauge("rankscope_ingest_streams", "Streams of batches open at the gateway.")

ROWS_WRITTEN = Counter("rankscope_ingest_rows_written", "Rows durable in the store.")
INSERTS = Counter(
    "rankscope_ingest_inserts", "Inserts tried, by result: ok, uncertain, overloaded, no_space, refused.", ["result"]
)
INSERT_SECONDS = Histogram(
    "rankscope_ingest_insert_seconds",
    "Time of one insert.",
    buckets=(0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30),
)
GROUP_ROWS = Histogram(
    "rankscope_ingest_group_rows",
    "Rows of one insert.",
    buckets=(100, 1_000, 5_000, 20_000, 50_000, 100_000, 200_000, 500_000),
)
STREAM_LAG = Gauge(
    "rankscope_ingest_stream_lag_seconds", "Age of the oldest batch of the last insert when it was written."
)
PRESENT = Counter(
    "rankscope_ingest_batches_present", "Batches not inserted because the store had their rows: duplicates prevented."
)
SET_BACK = Counter(
    "rankscope_ingest_senders_set_back", "Times a sender was asked again for batches that vanished from the broker."
)


def serve_metrics(listen: str, *, setting: str) -> None:
    """Serves the process's metrics over HTTP from a daemon thread; an empty address serves none.

    Raises:
        ConfigError: Not an address.
        CannotStart: The port is taken, or the address is not this machine's.
    """
    if not listen:
        return
    host, port = host_and_port(listen, setting=setting)
    try:
        start_http_server(port, addr=host)
    except OSError as error:
        raise CannotStart(f"cannot listen on {listen}: {error.strerror}; set {setting} to another") from error
