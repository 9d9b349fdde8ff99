"""Rewriting of code of tensorflow-ranking and TensorFlow Recommenders: `tfrank-sel-migrate`."""
