"""What tests of any folder may use."""

from collections.abc import Iterator

import hypothesis
import pytest

# no test is about time, and a machine may be busy
hypothesis.settings.register_profile(
    "busy", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("busy")


@pytest.fixture
def eagerly(request: pytest.FixtureRequest) -> Iterator[None]:
    """Runs functions without tracing or compiling them, unless a test is about that."""
    import tensorflow as tf

    tf.config.run_functions_eagerly(request.node.get_closest_marker("compiled") is None)
    yield
    tf.config.run_functions_eagerly(False)


@pytest.fixture(autouse=True, scope="module")
def _equal_losses_share_what_is_compiled() -> Iterator[None]:
    """Keeps what the tests of a module compile, as a program does that keeps its losses."""
    import tfrank_sel.compilation

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tfrank_sel.compilation, "_in_use", {})
        yield
