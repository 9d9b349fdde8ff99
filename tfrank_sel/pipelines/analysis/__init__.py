"""Analysis of splits: statistics, schema, drift."""
