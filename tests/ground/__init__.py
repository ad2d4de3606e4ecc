"""What the tests stand on: real brokers, stores and ranks, each in a process and a folder of its own."""
