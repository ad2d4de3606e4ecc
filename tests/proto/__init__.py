"""The contract: what crosses a process boundary, and the tables it becomes."""
