import importlib
import importlib.util

import pytest

from tfrank_sel import serving


def test_what_is_missing_is_named_with_the_extra(monkeypatch):
    genuine = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "grpc" else genuine(name)
    )
    with pytest.raises(
        ImportError, match=r"`tfrank_sel.serving` needs grpc: .*tfrank_sel\[serving\]"
    ):
        importlib.reload(serving)
