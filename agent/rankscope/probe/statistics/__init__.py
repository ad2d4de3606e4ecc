"""All statistics of a tensor, in as few passes over its memory as the machine allows."""

from rankscope.probe.statistics.blocked import table

__all__ = ["table"]
