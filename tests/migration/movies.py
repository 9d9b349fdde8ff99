"""Ratings of movies for a tutorial: made, small, and the same on every stack."""

from typing import Any

import numpy as np
import tensorflow as tf

USERS, MOVIES = 96, 60


def ratings() -> tf.data.Dataset:
    """Ratings from 0 to 4 of 10 to 30 movies a user, by closeness of taste."""
    random = np.random.RandomState(0)
    user, movie = random.randn(USERS, 4), random.randn(MOVIES, 4)
    rows: dict[str, list[Any]] = {"user_id": [], "movie_title": [], "user_rating": []}
    for i in range(USERS):
        for j in random.permutation(MOVIES)[: random.randint(10, 31)]:
            rows["user_id"].append(f"user {i}")
            rows["movie_title"].append(f"movie {j}")
            rows["user_rating"].append(np.float32(np.clip(np.round(user[i] @ movie[j]), 0, 4)))
    return tf.data.Dataset.from_tensor_slices({k: np.array(v) for k, v in rows.items()})


def titles() -> tf.data.Dataset:
    return tf.data.Dataset.from_tensor_slices([f"movie {j}" for j in range(MOVIES)])


def start(shape: tuple[int, int]) -> np.ndarray:
    """First weights, since no seed makes the same ones in Keras 2 and Keras 3."""
    return np.random.RandomState(shape[0]).uniform(-0.05, 0.05, shape).astype("float32")
