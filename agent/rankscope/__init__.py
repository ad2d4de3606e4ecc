"""Traces and tensor statistics of a multi-rank training, in one tree and one query."""
