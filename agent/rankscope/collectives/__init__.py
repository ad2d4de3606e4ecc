"""Collectives as this rank sees them: when it entered each one, when it was over, from the best source there is.

Nothing here adds a collective, changes a value, or raises into training. This package is loaded without torch;
`attach` needs it, and is loaded where a process group is.
"""
