"""The ingest tiers: gateway and writer, with the broker between them."""
