"""Runs whose model is also a file of ONNX."""

import importlib.util

from tests.pipelines.test_configured_runs import refused


def test_a_missing_runtime_of_onnx_is_named_before_any_work(tmp_path, monkeypatch):
    find = importlib.util.find_spec
    absent = lambda name, *rest: None if name == "onnxruntime" else find(name, *rest)  # noqa: E731
    monkeypatch.setattr(importlib.util, "find_spec", absent)
    options = ["--synthetic", "--output", tmp_path / "out", "--set", "export.onnx=true"]
    assert "export.onnx needs onnxruntime: pip install 'tfrank_sel[onnx]'" in refused(
        "run", *options
    )
