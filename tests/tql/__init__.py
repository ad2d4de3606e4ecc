"""TQL without a store: text, tree, fields, errors."""
