import numpy as np
import pytest

from tests.models.als import problems
from tests.models.als.problems import Problem
from tfrank_sel.models.als import RG2, RGCross, WeightedSquare

OBJECTIVES = [
    RG2(alpha=0.0),
    RG2(alpha=0.3, target=0.5),
    RGCross(alpha=0.3),
    RGCross(alpha=0.3, joint=True),
    WeightedSquare(alpha=0.7, unobserved=0.2),
]
every_objective = pytest.mark.parametrize("objective", OBJECTIVES, ids=repr)


def swept(of, objective, sweeps=1, **options):
    solver = problems.solver(of, objective, **options)
    users, items = (x.astype(options.get("dtype", "float64")) for x in (of.users, of.items))
    for _ in range(sweeps):
        solver.sweep(users, items)
    return users, items


@every_objective
def test_the_value_is_that_of_the_formula(objective):
    of = problems.problem()
    value = problems.solver(of, objective, threads=2).value(of.users, of.items)
    expected = problems.dense_value(of, objective, of.users, of.items)
    assert value == pytest.approx(expected, rel=1e-12)


@every_objective
def test_a_half_sweep_finds_the_minimum(objective):
    of = problems.problem(num_users=5, num_items=6, num_factors=3, density=0.5)
    solver, items = problems.solver(of, objective), of.items.copy()
    users = of.users.copy()
    solver.renew_users(users, items)
    best = problems.dense_minimum(of, objective, users, items, side=0)
    np.testing.assert_allclose(users, best, rtol=1e-9, atol=1e-10)
    if objective.kappa and not objective.joint:
        return  # the items' step minimises a bound
    solver.renew_items(users, items)
    best = problems.dense_minimum(of, objective, users, items, side=1)
    np.testing.assert_allclose(items, best, rtol=1e-9, atol=1e-10)


@pytest.mark.sample(16)
@every_objective
@pytest.mark.parametrize("cg", [None, 2])
def test_the_objective_never_increases(objective, cg):
    of = problems.problem(num_users=60, num_items=200, num_factors=20)
    solver = problems.solver(of, objective, cg=cg)
    users, items = of.users.copy(), of.items.copy()
    values = [solver.value(users, items)]
    for _ in range(6):
        for renew in (solver.renew_users, solver.renew_items):
            renew(users, items)
            values.append(solver.value(users, items))
    slack = 1e-9 if objective.joint and cg else 1e-12
    assert np.all(np.diff(values) <= slack * np.abs(values[0]))
    assert values[-1] < values[0]


@pytest.mark.sample(9)
@every_objective
@pytest.mark.parametrize("width", [3, 16, 40])
def test_float32_agrees_with_float64(objective, width):
    """Widths that registers divide and do not, rows short and long."""
    of = problems.problem(num_users=300, num_items=50, num_factors=width, density=0.4)
    exact, single = (swept(of, objective, sweeps=10, dtype=d) for d in ("float64", "float32"))
    for a, b in zip(exact, single, strict=True):
        assert b.dtype == np.float32
        np.testing.assert_allclose(b, a, atol=1e-4 * np.abs(a).max())


def test_rows_of_any_length_are_solved_at_many_factors():
    """Up to, at and beyond the number of rows that a block holds."""
    gains = np.tril(np.ones([200, 200]))
    of = problems.problem(num_users=200, num_items=200, num_factors=192)._replace(gains=gains)
    users, items, objective = of.users.copy(), of.items, RG2(alpha=0.3, target=0.5)
    problems.solver(of, objective).renew_users(users, items)
    gram, total = items.T * of.base_weights @ items, of.base_weights @ items
    for u, (weight, ridge) in enumerate(zip(of.list_weights, of.user_ridges, strict=True)):
        positives, scale = items[: u + 1], weight * (u + 1) / 200
        matrix = scale * gram + weight * 0.3 * positives.T @ positives + ridge * np.eye(192)
        rhs = weight * (1.0 + 0.3 * 0.5) * positives.sum(axis=0) - scale * total
        np.testing.assert_allclose(users[u], np.linalg.solve(matrix, rhs), rtol=1e-7, atol=1e-9)


@every_objective
def test_threads_change_nothing(objective):
    of = problems.problem(num_users=200, num_items=150)
    one, three = (swept(of, objective, sweeps=2, threads=n) for n in (1, 3))
    for a, b in zip(one, three, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-12)
    for a, b in zip(three, swept(of, objective, sweeps=2, threads=3), strict=True):
        np.testing.assert_array_equal(a, b)


def test_many_steps_of_conjugate_gradients_are_exact():
    of = problems.problem(num_users=300, num_items=1200, num_factors=20, density=0.45)
    exact, steps = (swept(of, RG2(), sweeps=1, cg=cg) for cg in (None, 40))
    for a, b in zip(exact, steps, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-9)


@every_objective
def test_the_order_of_users_and_items_is_irrelevant(objective):
    of, rng = problems.problem(), np.random.default_rng(1)
    u, i = rng.permutation(40), rng.permutation(30)
    other = Problem(
        of.gains[u][:, i],
        of.list_weights[u],
        of.base_weights[i],
        of.user_ridges[u],
        of.item_ridges[i],
        of.users[u],
        of.items[i],
    )
    users, items = swept(of, objective, sweeps=2)
    others = swept(other, objective, sweeps=2)
    np.testing.assert_allclose(others[0], users[u], rtol=1e-9, atol=1e-11)
    np.testing.assert_allclose(others[1], items[i], rtol=1e-9, atol=1e-11)


@every_objective
def test_a_list_weight_of_two_is_the_user_twice(objective):
    of = problems.problem(num_users=6)
    weights, gains, users, ridges = (
        x.copy() for x in (of.list_weights, of.gains, of.users, of.user_ridges)
    )
    weights[0], ridges[0] = 2.0, 2.0
    doubled = of._replace(list_weights=weights, user_ridges=ridges)
    twin = of._replace(
        list_weights=np.concatenate([[1.0], weights[1:], [1.0]]),
        user_ridges=np.concatenate([[1.0], ridges[1:], [1.0]]),
        gains=np.concatenate([gains, gains[:1]]),
        users=np.concatenate([users, users[:1]]),
    )
    one, two = swept(doubled, objective), swept(twin, objective)
    np.testing.assert_allclose(two[0][:-1], one[0], rtol=1e-9, atol=1e-11)
    np.testing.assert_allclose(two[0][-1], one[0][0], rtol=1e-9, atol=1e-11)
    np.testing.assert_allclose(two[1], one[1], rtol=1e-9, atol=1e-11)


@pytest.mark.sample(12)
@every_objective
def test_the_optimum_stays(objective):
    of = problems.problem(num_factors=2)
    users, items = swept(of, objective, sweeps=300)
    settled = swept(of._replace(users=users, items=items), objective)
    for a, b in zip((users, items), settled, strict=True):
        np.testing.assert_allclose(b, a, atol=1e-10)


def test_users_and_items_without_positives_rank_as_the_paper_says():
    of = problems.problem()
    users, items = swept(of, RG2(alpha=0.0), sweeps=3)
    assert np.all(users[2] == 0.0)
    assert np.any(items[1] != 0.0)  # an item that nobody took is pushed down, not ignored
    positive = of.gains.sum(axis=1) > 0
    assert np.mean(users[positive] @ items[1]) < 0.0


@pytest.mark.parametrize("gains", [np.eye(9), np.ones([9, 9])], ids=["one each", "all"])
@every_objective
def test_extreme_interactions_are_finite(objective, gains):
    of = problems.problem(num_users=9, num_items=9, num_factors=12)._replace(gains=gains)
    for factors in swept(of, objective, sweeps=4, dtype="float32"):
        assert np.all(np.isfinite(factors))


def test_a_singular_system_is_an_error():
    of = problems.problem(num_users=9, num_items=8, num_factors=20)
    of = of._replace(user_ridges=np.zeros(9), item_ridges=np.zeros(8))
    for objective in (RG2(), RG2(alpha=0.0)):
        with pytest.raises(ValueError, match="raise `regularization`"):
            swept(of, objective)


@pytest.mark.parametrize("make", [RG2, RGCross, WeightedSquare])
def test_a_negative_weight_is_refused(make):
    with pytest.raises(ValueError, match="Received"):
        make(alpha=-1.0)
