"""The table of ONNX has small differences."""

import pytest


@pytest.mark.long
def test_the_table_of_onnx_has_small_differences():
    pytest.importorskip("onnxruntime")
    from benchmarks.quality import engines

    for kind in ("two towers", "trees"):
        _, name, worst, *times, _ = map(str.strip, engines.row(kind, 1, 1).split("|"))
        assert name == kind
        assert float(worst) < (1e-6 if kind == "trees" else 1e-5)
        assert all(float(time.split()[0]) > 0.0 for time in times)
