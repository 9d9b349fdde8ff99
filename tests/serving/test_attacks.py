"""Each attack on a server of its own: good clients are answered meanwhile, and memory returns."""

import pytest

from benchmarks.robustness import attacks, serving_attacks
from benchmarks.robustness.serving_attacks import MIB

# attacks whose requests are within the bounds, or end without an answer of the server
_NOT_REFUSED = {"shape_within_bounds", "irregular_numbers", "good_grpc", "good_rest"}


@pytest.fixture(scope="module")
def server():
    with serving_attacks.running() as server:
        yield server


@pytest.mark.parametrize("name", attacks.ATTACKS)
def test_good_clients_are_answered_and_memory_returns(server, name):
    found = server.attacked(name, seconds=1.0)
    refused = found.codes.total() - found.codes["OK"]

    assert found.failed == []
    # bounds of an endpoint that goes on, not of its speed: without limits, some attacks end it,
    # stop it for 10 seconds, or take gigabytes
    assert len(found.during) > 2
    assert max(found.during) < 8.0
    assert max(found.memory) - found.before < 800 * MIB
    assert found.after - found.before < 400 * MIB
    assert (refused > 0) == (name not in _NOT_REFUSED)
    if name not in _NOT_REFUSED:
        assert found.codes["OK"] == len(found.during)
    assert not found.codes.keys() & {"UNKNOWN", "INTERNAL"}
