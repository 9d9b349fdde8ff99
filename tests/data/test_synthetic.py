import numpy as np
import pytest

from tfrank_sel.data import synthetic


def test_the_same_seed_makes_the_same_lists():
    first, second, other = (list(synthetic.lists(5, seed=seed)) for seed in (3, 3, 4))
    for a, b in zip(first, second, strict=True):
        assert (a.query_id, a.doc_ids) == (b.query_id, b.doc_ids)
        np.testing.assert_array_equal(a.features, b.features)
        np.testing.assert_array_equal(a.labels, b.labels)
    assert any(len(a.labels) != len(b.labels) for a, b in zip(first, other, strict=True))


def test_sizes_grades_and_features_are_as_stated():
    lists = list(synthetic.lists(200, num_features=10, seed=1))
    sizes = [len(found.labels) for found in lists]
    labels = np.concatenate([found.labels for found in lists])
    features = np.concatenate([found.features for found in lists])
    assert (min(sizes), max(sizes)) == (1, 200)
    assert set(labels) == {0.0, 1.0, 2.0, 3.0, 4.0}
    np.testing.assert_allclose(np.mean(labels == 0.0), 0.52, atol=0.03)
    latent = np.where(np.arange(10) % 2, np.log(np.abs(features)) / 2.0, features)
    tells = np.abs([np.corrcoef(column, labels)[0, 1] for column in latent.T])
    assert tells[:5].min() > 3.0 * tells[5:].max()


@pytest.mark.parametrize("wrong", [{"num_lists": 1}, {"num_features": 3}, {"max_list_size": 0}])
def test_too_small_a_set_is_refused(wrong):
    with pytest.raises(ValueError, match=f"`{next(iter(wrong))}` must be at least"):
        next(synthetic.lists(**{"num_lists": 9, **wrong}))
