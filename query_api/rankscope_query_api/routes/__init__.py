"""The routes under /api/v1: from a request to the store, and from the store's values to JSON."""
