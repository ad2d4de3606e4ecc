"""Figures of the node, its devices and the processes on it, sampled by the agent process."""
