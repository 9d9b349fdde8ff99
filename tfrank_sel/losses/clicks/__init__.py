"""Click losses, which model examination or click types besides relevance."""
