"""What tests of any folder may use."""

from collections.abc import Iterator

import pytest


@pytest.fixture
def eagerly(request: pytest.FixtureRequest) -> Iterator[None]:
    """Runs functions without tracing or compiling them, unless a test is about that."""
    import tensorflow as tf

    tf.config.run_functions_eagerly(request.node.get_closest_marker("compiled") is None)
    yield
    tf.config.run_functions_eagerly(False)
