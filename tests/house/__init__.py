"""The house rules as tests: layout, size, words, names, imports, papers."""
