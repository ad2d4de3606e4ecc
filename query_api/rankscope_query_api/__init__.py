"""The query service: reads the store and answers over HTTP."""
