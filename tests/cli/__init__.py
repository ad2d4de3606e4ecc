"""The command line, the embedded server and the demo, run as a user runs them."""
