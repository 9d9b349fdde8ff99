"""Lists whose labels two features determine."""

import numpy as np

SIZES = np.random.default_rng(0).integers(2, 12, 150)


def lists() -> tuple[np.ndarray, np.ndarray]:
    """Features and labels with fractions."""
    random = np.random.default_rng(1)
    features = random.normal(size=(SIZES.sum(), 4))
    signal = features[:, 0] + 0.5 * features[:, 1] ** 2
    return features, np.maximum(np.round(2.0 * signal) / 4.0, 0.0)
