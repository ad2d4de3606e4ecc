"""Ranks beside each other: what one rank's rows cannot say alone. Pure functions over what `reading` has read."""
