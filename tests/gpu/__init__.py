"""What only a GPU shows: streams, graphs, pinned copies, and that the host waits for none of it."""
