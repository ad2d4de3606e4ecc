"""Tests of the spool: what its owner appends is what its sender reads, whatever the disk and the processes do."""
