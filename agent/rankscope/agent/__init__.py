"""The node's agent: carries what lies in spools to a gateway, and frees it once the store has it.

A process of its own (`rankscope agent`), a thread of a trainer, or a command that drains a folder: the same parts.
Nothing here is imported by a trainer whose agent is a process, but `starting`, which needs the standard library only.
"""
