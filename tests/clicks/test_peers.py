"""Likelihoods and values beside those of other programs, recorded on the same made logs."""

import numpy as np
import pytest

from tfrank_sel import clicks
from tfrank_sel.clicks import models
from tfrank_sel.data import synthetic

# log-likelihoods per item of held-out sessions: by 1,000 full-batch steps of Adam in clax-models
# 0.1.1, and by 50 iterations of PyClick (98e7e46)
CLAX = {"pbm": -0.355201, "ubm": -0.354880, "dcm": -0.381639, "dbn": -0.369852}
PYCLICK = {"pbm": -0.355270, "ubm": -0.354954}
# values by the estimators of obp 0.5.5
OBP = {"ips": 1.650990374026, "snips": 0.808012741631, "doubly_robust": 1.544925322164}


@pytest.fixture(scope="module")
def fits():
    labels = [np.random.default_rng(i).integers(0, 5, 6).astype(float) for i in range(4)]
    table = synthetic.sessions(labels, 4000, temperature=1.0, eta=0.7, size=6, seed=5)
    log, is_held = clicks.Log.of(table, session="session"), np.random.default_rng(0).random(4000)
    of_row = is_held[table["session"]] < 0.2  # what the others held out
    train, test = (log.part(np.flatnonzero(of_row == x)) for x in (False, True))
    found = {}
    for model in CLAX:
        [fitted] = models.fits(train, model, [np.ones(len(train.items))])
        probable = fitted.clicked(test)
        found[model] = np.mean(np.log(np.where(test.clicks, probable, 1.0 - probable)))
    return found


@pytest.mark.parametrize("recorded", [CLAX, PYCLICK], ids=["clax", "pyclick"])
def test_click_models_have_the_likelihoods_of_other_programs(fits, recorded):
    for model, likelihood in recorded.items():
        assert fits[model] == pytest.approx(likelihood, abs=1e-3), model


@pytest.mark.parametrize("estimator", clicks.ESTIMATORS)
def test_values_are_those_of_obp(estimator):
    random = np.random.default_rng(0)
    logging, new, model = (
        random.dirichlet(np.ones(5)),
        random.dirichlet(np.ones(5)),
        random.random(5),
    )
    action = random.choice(5, 400, p=logging)
    reward = (random.random(400) < 0.1 + 0.15 * action).astype(float)
    found = clicks.value(
        reward,
        logging[action],
        new[action],
        estimator,
        predicted=model[action],
        predicted_target=new @ model,
    )
    assert found.value == pytest.approx(OBP[estimator], abs=1e-9)
