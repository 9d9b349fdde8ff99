import numpy as np
import pytest

from benchmarks.speed import local_group
from tests.models.als import one_process


@pytest.fixture(scope="module")
def of_two(tmp_path_factory):
    """What two processes on this machine fit together."""
    folder = tmp_path_factory.mktemp("group")
    found = local_group.run([one_process.__name__, str(folder)], 2)
    assert [status for status, _, _ in found] == [0, 0], found
    return [dict(np.load(folder / f"{rank}.npz")) for rank in range(2)]


@pytest.fixture(scope="module")
def of_one():
    return one_process.fitted(slice(None))


@pytest.mark.parametrize("name", one_process.FACTORIZERS)
def test_two_processes_find_the_factors_of_one(name, of_one, of_two):
    users = np.concatenate([half[f"{name} users"] for half in of_two])
    np.testing.assert_allclose(users, of_one[f"{name} users"], atol=1e-5)
    for half in of_two:
        np.testing.assert_allclose(half[f"{name} items"], of_one[f"{name} items"], atol=1e-5)
        np.testing.assert_allclose(half[f"{name} history"], of_one[f"{name} history"], rtol=1e-4)
