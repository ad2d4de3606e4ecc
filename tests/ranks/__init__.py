"""Real trainings of four ranks with a fault put in, and what is then said about them: rank, step and cause."""
