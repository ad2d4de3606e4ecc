"""The whole of it, with real parts: trainers, gateway, broker, writer, store, queries."""
