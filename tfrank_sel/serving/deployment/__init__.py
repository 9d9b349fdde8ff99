"""Deployment of a ranker on TensorFlow Serving: configuration files, folders, checks."""
