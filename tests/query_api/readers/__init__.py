"""Tests of who reads: the Python client and the command line, over the real query service."""
