"""TQL in the query service: the corpus, the SQL, and what it gives over a real engine."""
