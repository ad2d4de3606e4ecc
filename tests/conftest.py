"""Brings the fixtures of the test ground to every test."""

pytest_plugins = ["tests.ground.fixtures"]
