"""Tests of the SDK: what training code calls, and what leaves the process."""
