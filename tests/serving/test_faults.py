from benchmarks.robustness import serving_faults


def test_good_clients_are_served_whatever_bad_ones_do():
    outcomes, _, swaps = serving_faults.run(seconds=4.0, swap_seconds=0.8)

    assert [outcome for outcome in outcomes if outcome.startswith("FAILED")] == []
    assert outcomes["good: answered"] > 100
    assert {"bad: 400", "bad: 413", "bad: INVALID_ARGUMENT", "disconnected", "garbage"} <= set(
        outcomes
    )
    assert swaps > 2


def test_growth_is_told():
    assert serving_faults.growth([1, 1, 10, 10, 10, 10, 20, 20]) == 1.0
