"""The ingest tiers on real parts: broker, gRPC, chDB."""
