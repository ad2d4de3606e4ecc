"""Trainings that use rankscope as anyone would: through its public names only."""
