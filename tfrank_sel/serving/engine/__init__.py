"""The engine of the endpoint: models, their versions, and answers to requests."""
