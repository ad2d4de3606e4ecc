"""What is measured; `make bench` writes build/bench.json and prints a table."""
