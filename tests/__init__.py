"""The tests, one folder per area; shared grounds are in `tests/support`."""
