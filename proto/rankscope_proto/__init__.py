"""The contracts: what crosses a process boundary."""
