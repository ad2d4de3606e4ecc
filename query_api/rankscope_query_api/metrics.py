"""What the query service counts about itself, for Prometheus; no run, rank or project is ever a label."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)


class Metrics:
    """The service's metrics, in a registry of its own: two services may live in one process."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.requests = Counter(
            "rankscope_query_requests",
            "Requests answered, by route template and status.",
            ["route", "status"],
            registry=self.registry,
        )
        self.request_seconds = Histogram(
            "rankscope_query_request_seconds",
            "Time from a request's head to the end of its answer, by route template.",
            ["route"],
            buckets=_SECONDS,
            registry=self.registry,
        )
        self.store_seconds = Histogram(
            "rankscope_query_store_seconds",
            "Time one query took in the store, waiting for a handle included.",
            ["outcome"],
            buckets=_SECONDS,
            registry=self.registry,
        )
        self.handles_held = Gauge(
            "rankscope_query_handles_held",
            "Handles to the store that a query holds now.",
            registry=self.registry,
        )

    def text(self) -> bytes:
        """All of them in Prometheus' text format."""
        return generate_latest(self.registry)
