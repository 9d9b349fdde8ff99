"""Every use of tensorflow-ranking is rewritten or marked, wherever it is, and code stays code."""

import ast
import json
import pathlib
import subprocess
import sys

import pytest

from tfrank_sel.migration import names, rewriting
from tfrank_sel.migration.rewriting import rewrite_file

HEAD = "import tensorflow_ranking as tfr\n"
# the public names of tensorflow-ranking 0.5.5, by module, and where they may stand
TABLE = json.loads((pathlib.Path(__file__).parent / "positions.json").read_text())
NAMES = [f"{module}.{x}".lstrip(".") for module, own in TABLE["names"].items() for x in own.split()]
POSITIONS: list[str] = TABLE["positions"]


@pytest.mark.sample(9)
@pytest.mark.parametrize("position", POSITIONS)
@pytest.mark.parametrize("form", ["dotted", "from"])
def test_each_name_is_rewritten_or_marked_in_each_position(position: str, form: str) -> None:
    for name in NAMES[POSITIONS.index(position) % 23 :: 23]:  # each name in several positions
        module, _, own = name.rpartition(".")
        if form == "from":
            if module.endswith("Key"):
                continue
            head = f"from tensorflow_ranking{'.' if module else ''}{module} import {own}\n"
        else:
            head, own = HEAD, f"tfr.{name}"
        used = position.format(*[own] * position.count("{}"))
        code = rewriting.rewrite(head + used + "\n")
        tree = ast.parse(code)
        assert "tensorflow_ranking" not in code, used  # but its import
        marks = code.count(rewriting.MARK)
        read = (
            x
            for x in ast.walk(tree)
            if isinstance(x, ast.Attribute)
            or (isinstance(x, ast.Name) and not isinstance(x.ctx, ast.Store))
        )
        left = [x for x in read if ast.unparse(x) == own]
        assert marks or not left, (used, code)
        assert rewriting.rewrite(code) == code


@pytest.mark.sample(4)
@pytest.mark.parametrize("name", NAMES)
def test_the_advice_for_each_name_is_that_of_its_module_at_least(name: str) -> None:
    if rewriting.counterpart(name) is None and name not in (
        "keras",
        "keras.losses.ListMLELambdaWeight",
    ):
        assert rewriting.by_hand(name) != names.OTHERWISE


@pytest.mark.parametrize(
    "code",
    [
        "from tensorflow_ranking import *\nloss = keras.losses.SoftmaxLoss()\n",
        "from tensorflow_ranking.keras.losses import *\nloss = SoftmaxLoss()\n",
        "import importlib\ntfr = importlib.import_module('tensorflow_ranking')\n",
        "tfr = __import__('tensorflow_ranking.keras')\n",
        "import pytest\ntfr = pytest.importorskip('tensorflow_ranking')\n",
        "try:\n    import tensorflow_ranking as tfr\nexcept ImportError:\n    tfr = None\n"
        "x = tfr.keras.losses.SoftmaxLoss()\n",
        "if True: import tensorflow_ranking as tfr\nx = tfr.keras.metrics.get('map')\n",
        "def f():\n    global tfr\n    import tensorflow_ranking as tfr\n",
        "def f(): import tensorflow_ranking as tfr; return tfr.keras.losses.get('a')\n",
        "class A:\n    import tensorflow_ranking as tfr\n    x = tfr.keras.losses.get('a')\n",
    ],
)
def test_an_import_that_cannot_be_replaced_stays_and_is_marked(code: str) -> None:
    lines = rewriting.rewrite(code).splitlines()
    assert [x for x in lines if not x.lstrip().startswith(rewriting.MARK)] == code.splitlines()
    assert len(lines) > len(code.splitlines())


@pytest.mark.sample(4)
@pytest.mark.parametrize("loss", [x for x in names.LOSSES if x != "get"])
@pytest.mark.parametrize("version", ["", "lambda_weight=None, ragged=True, "])
def test_what_is_rewritten_runs(loss: str, version: str) -> None:
    code = rewriting.rewrite(f"{HEAD}made = tfr.keras.losses.{loss}({version}name='a')\n")
    made: dict[str, object] = {}
    exec(code, made)
    assert made["made"].name == "a"


@pytest.mark.parametrize("key", sorted(set().union(*names.KEYS.values())))
def test_keys_are_those_that_there_are(key: str) -> None:
    from tfrank_sel.presets import tfr

    assert key.lower() in {*tfr.losses.KEYS, *tfr.metrics.KEYS}


def test_optimizers_of_keras_2_become_those_of_keras_3() -> None:
    code = f"{HEAD}import tensorflow as tf\nx = tf.keras.optimizers.legacy.Adagrad(lr=0.1)\n"
    assert "tf.keras.optimizers.Adagrad(learning_rate=0.1)" in rewriting.rewrite(code)
    assert rewriting.MARK in rewriting.rewrite(code.replace("lr=", "decay="))


def test_comments_above_removed_imports_stay() -> None:
    second = "from tensorflow_ranking.keras import losses"
    code = f"# a\n{HEAD}# b\n{second}\n# c\nx = losses.SoftmaxLoss()\n"
    found = rewriting.rewrite(code)
    assert [x for x in found.splitlines() if x.startswith("#")] == ["# a", "# b", "# c"]


@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
@pytest.mark.parametrize("coding", ["", "# -*- coding: utf-8 -*-\n", "# coding: latin-1\n"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_encoding_and_ends_of_lines_stay(mark: bytes, coding: str, end: str) -> None:
    if mark and "latin" in coding:
        pytest.skip("Python refuses both")
    encoding = "latin-1" if "latin" in coding else "utf-8"
    before = f"{coding}{HEAD}x = tfr.keras.losses.SoftmaxLoss()  # é\ny = tfr.data\n"
    after = rewriting.rewrite(before)
    found = rewrite_file("a.py", mark + before.replace("\n", end).encode(encoding))
    assert found == mark + after.replace("\n", end).encode(encoding)
    assert rewriting.MARK in after


def notebook(*cells: object, kind: str = "code") -> dict[str, object]:
    made = [{"cell_type": kind, "metadata": {}, "outputs": [], "source": x} for x in cells]
    made.append(
        {"cell_type": "markdown", "metadata": {}, "source": ["import tensorflow_ranking é"]}
    )
    return {"cells": made, "metadata": {"a": 1.0}, "nbformat": 4, "nbformat_minor": 5}


CELLS = [
    ["%%bash\n", "pip install tensorflow_ranking"],
    ["!pip install x\n", "%matplotlib inline\n", "import tensorflow_ranking as tfr"],
    [],
    ["# why\n", "loss = tfr.keras.losses.SoftmaxLoss()\n", "files = !ls\n", "loss?"],
    "x = tfr.keras.what",
]


@pytest.mark.parametrize("indent", [1, 4, None])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_cells_of_code_of_a_notebook_are_rewritten_and_all_else_stays(
    indent: int, end: str
) -> None:
    before = json.dumps(notebook(*CELLS), indent=indent, ensure_ascii=False) + "\n"
    found = rewrite_file("a.ipynb", before.replace("\n", end).encode())
    after = [
        CELLS[0],
        [*CELLS[1][:2], "from tfrank_sel.presets import tfr"],
        [],
        ["# why\n", "loss = tfr.losses.softmax_loss()\n", "files = !ls\n", "loss?"],
        f"{rewriting.MARK}`keras.what`: {names.OTHERWISE}\nx = tfr.keras.what",
    ]
    text = json.dumps(notebook(*after), indent=indent, ensure_ascii=False) + "\n"
    assert found.decode() == text.replace("\n", end)


def test_a_notebook_of_colab_and_the_module_that_a_cell_writes_are_rewritten() -> None:
    cells = [
        "# a < b\n!train \\\n  --package tensorflow_ranking\nx = 1",
        "%%writefile train.py\nimport tensorflow_ranking as tfr\nx = tfr.keras.losses.get('a')",
        "%%writefile notes.txt\nimport tensorflow_ranking (",
        "%%bash\nimport tensorflow_ranking",
    ]
    before = json.dumps(notebook(*cells), indent=2).replace("<", "\\u003c")
    cells[1] = "%%writefile train.py\nfrom tfrank_sel.presets import tfr\nx = tfr.losses.get('a')"
    after = json.dumps(notebook(*cells), indent=2).replace("<", "\\u003c")
    assert rewrite_file("a.ipynb", before.encode()).decode() == after


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    "content",
    [b"not json", b"[]", b'{"cells": 1}', b"\xff\xfe\0", b'{"cells":   [ ]}']
    + [json.dumps(notebook("import (")).encode()],
)
def test_a_notebook_that_cannot_be_rewritten_is_named(
    content: bytes, tmp_path: pathlib.Path
) -> None:
    file = tmp_path / "a.ipynb"
    file.write_bytes(content)
    command = [sys.executable, "-m", "tfrank_sel.migration", "--write", str(file)]
    told = subprocess.run(command, capture_output=True, text=True)
    assert told.returncode == 2
    [line] = [x for x in told.stderr.splitlines() if x.startswith("Cannot")]
    assert line.startswith(f"Cannot rewrite {file}: ")
    assert file.read_bytes() == content
