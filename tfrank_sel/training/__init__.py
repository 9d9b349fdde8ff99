"""Training of networks and boosted trees on lists that are prepared and cached."""

import importlib.util


def has_lightgbm() -> bool:
    """Whether LightGBM is installed."""
    return importlib.util.find_spec("lightgbm") is not None
