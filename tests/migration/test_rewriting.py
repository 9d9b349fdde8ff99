"""The codemod rewrites what it knows, and marks the rest."""

import operator
import pathlib
import subprocess
import sys

import pytest

from tfrank_sel.migration import names, rewriting
from tfrank_sel.migration.__main__ import main
from tfrank_sel.presets import tfr, tfrs

GUIDE = pathlib.Path(__file__).parent.parent.parent / "docs" / "migrate.md"
HEAD = "import tensorflow_ranking as tfr\n"


def rewritten(line: str, head: str = HEAD) -> list[str]:
    return rewriting.rewrite(head + line + "\n").splitlines()


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (
            "tfr.keras.losses.SoftmaxLoss(temperature=0.5)",
            "tfr.losses.softmax_loss(temperature=0.5)",
        ),
        (
            "tfr.keras.losses.SoftmaxLoss(name='a', ragged=True)",
            "tfr.losses.softmax_loss(name='a')",
        ),
        ("tfr.keras.metrics.NDCGMetric(topn=5)", "tfr.metrics.ndcg(topn=5)"),
        ("tfr.keras.metrics.get('map', name='a')", "tfr.metrics.get('map', name='a')"),
        ("tfr.keras.metrics.RankingMetricKey.MAP", '"map"'),
        ("tfr.keras.losses.RankingLossKey.SOFTMAX_LOSS", '"softmax_loss"'),
        ("tfr.utils.sort_by_scores(s, [x], seed=1)[0]", "tfr.sort_by_scores(s, [x])[0]"),
    ],
)
def test_a_name_becomes_that_of_the_preset(line: str, expected: str) -> None:
    assert rewritten(line)[-1] == expected


def test_lambda_weights_are_ours_under_our_arguments() -> None:
    lines = rewritten(
        "tfr.keras.losses.PairwiseHingeLoss(lambda_weight=tfr.keras.losses.NDCGLambdaWeight("
        "topn=5, gain_fn=tfr.utils.identity))"
    )
    assert lines == [
        "from tfrank_sel.losses import lambdas",
        "from tfrank_sel.ops import ranking",
        "from tfrank_sel.presets import tfr",
        "tfr.losses.pairwise_hinge_loss(lambda_weight=lambdas.NDCGLambdaWeight("
        "k=5, gain=ranking.linear_gain))",
    ]


def test_the_lambda_weight_of_list_mle_is_its_function() -> None:
    line = (
        "tfr.keras.losses.ListMLELoss(lambda_weight=tfr.keras.losses.ListMLELambdaWeight("
        "rank_discount_fn=f))"
    )
    assert rewritten(line)[-1] == "tfr.losses.list_mle_loss(lambda_weight=f)"


@pytest.mark.parametrize(
    ("head", "line"),
    [
        ("import tensorflow_ranking\n", "tensorflow_ranking.keras.metrics.MRRMetric()"),
        ("from tensorflow_ranking.keras import metrics as m\n", "m.MRRMetric()"),
        ("from tensorflow_ranking.keras.metrics import MRRMetric\n", "MRRMetric()"),
        ("from tensorflow_ranking.python.keras import metrics\n", "metrics.MRRMetric()"),
        ("import tensorflow as tf, tensorflow_ranking as tfr\n", "tfr.keras.metrics.MRRMetric()"),
    ],
)
def test_any_form_of_import_is_followed(head: str, line: str) -> None:
    lines = rewritten(line, head)
    assert "from tfrank_sel.presets import tfr" in lines
    assert lines[-1] == "tfr.metrics.mrr()"
    assert ("import tensorflow as tf" in lines) == ("as tf," in head)


def test_a_name_that_is_taken_is_left_to_its_owner() -> None:
    lines = rewritten("ranking = tfr.utils.inverse(rank)")
    assert "from tfrank_sel.ops import ranking as tfrank_sel_ranking" in lines
    assert lines[-1] == "ranking = tfrank_sel_ranking.inverse_discount(rank)"


def test_parts_of_keras_2_become_those_of_both() -> None:
    head = HEAD + "import tensorflow as tf\n"
    lines = rewritten("tf.keras.layers.experimental.preprocessing.StringLookup()", head)
    assert lines[-1] == "tf.keras.layers.StringLookup()"
    assert rewritten("tf.keras.losses.Reduction.SUM", head)[-1] == '"sum"'


def test_what_a_person_must_change_is_marked_above_its_statement() -> None:
    lines = rewritten("class P(tfr.keras.pipeline.SimplePipeline):\n    x = tfr.keras.what.Ever()")
    pipeline = names.BY_HAND["keras.pipeline"]
    assert lines == [
        f"{rewriting.MARK}`keras.pipeline.SimplePipeline`: {pipeline}",
        "class P(tfr.keras.pipeline.SimplePipeline):",
        f"    {rewriting.MARK}`keras.what.Ever`: {names.OTHERWISE}",
        "    x = tfr.keras.what.Ever()",
    ]


@pytest.mark.parametrize(
    "line", ["tfr.keras.losses.SoftmaxLoss('sum')", "tfr.keras.metrics.NDCGMetric('ndcg', 5)"]
)
def test_arguments_by_place_are_marked(line: str) -> None:
    assert "by name" in rewritten(line)[-2]


def test_an_import_inside_a_function_is_replaced_there() -> None:
    code = """def first():
    # why
    import tensorflow_ranking as tfr, os

    def inner():
        return tfr.keras.losses.SoftmaxLoss(lambda_weight=tfr.keras.losses.DCGLambdaWeight())
    return inner


class A:
    async def second(self):
        from tensorflow_ranking.keras import metrics
        return [metrics.MRRMetric() for _ in "ab"]

    def third(self):
        import tensorflow_ranking.keras
        return tensorflow_ranking.keras.utils.inverse


def unused():
    import tensorflow_ranking
"""
    expected = """def first():
    # why
    from tfrank_sel.losses import lambdas
    from tfrank_sel.presets import tfr
    import os

    def inner():
        return tfr.losses.softmax_loss(lambda_weight=lambdas.DCGLambdaWeight())
    return inner


class A:
    async def second(self):
        from tfrank_sel.presets import tfr
        return [tfr.metrics.mrr() for _ in "ab"]

    def third(self):
        from tfrank_sel.ops import ranking
        return ranking.inverse_discount


def unused():
    pass
"""
    assert rewriting.rewrite(code) == expected
    assert rewriting.rewrite(expected) == expected


def test_code_without_tensorflow_ranking_is_left_alone() -> None:
    code = "import tensorflow as tf\nx = tf.keras.losses.Reduction.SUM\n"
    assert rewriting.rewrite(code) == code


def test_every_name_stands_for_one_that_there_is() -> None:
    for table, module in ((names.LOSSES, tfr.losses), (names.METRICS, tfr.metrics)):
        assert all(callable(getattr(module, name)) for name in table.values())
    assert all(callable(operator.attrgetter(name)(tfrs)) for name in names.RECOMMENDERS)


@pytest.mark.parametrize("base", ["tfrs.Model", "tfrs.models.Model"])
def test_a_class_of_tensorflow_recommenders_can_be_a_base_and_others_are_marked(base: str) -> None:
    head = "import tensorflow_recommenders as tfrs\n"
    code = f"{head}class A({base}): pass\ntfrs.layers.blocks.MLP\n"
    lines = rewriting.rewrite(code).splitlines()
    assert lines[:2] == ["from tfrank_sel.presets import tfrs", f"class A({base}): pass"]
    assert operator.attrgetter(base.removeprefix("tfrs."))(tfrs) is tfrs.Model
    assert lines[2].startswith(rewriting.MARK + "`tensorflow_recommenders.layers.blocks.MLP`: Use")
    assert lines[3] == "tfrs.layers.blocks.MLP"


@pytest.mark.sample(4)
@pytest.mark.parametrize("name", names.BY_HAND)
def test_the_guide_says_what_to_do_by_hand(name: str) -> None:
    [row] = [x for x in GUIDE.read_text().splitlines() if f" | {names.BY_HAND[name]} |" in x]
    assert f"`{name.removeprefix('tensorflow_recommenders.')}`" in row.split(" | ")[0]


def run(monkeypatch: pytest.MonkeyPatch, *arguments: object) -> None:
    monkeypatch.setattr(sys, "argv", ["tfrank-sel-migrate", *map(str, arguments)])
    main()


def test_the_command_prints_a_diff_or_writes(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "train.py"
    before = HEAD + "loss = tfr.keras.losses.ApproxNDCGLoss()\nx = tfr.keras.layers.y\n"
    file.write_text(before)
    run(monkeypatch, file)
    shown = capsys.readouterr()
    assert "+loss = tfr.losses.approx_ndcg_loss()\n" in shown.out
    assert "Places to change by hand: 1" in shown.err
    assert file.read_text() == before
    run(monkeypatch, "--write", file)
    assert file.read_text() == rewriting.rewrite(before)
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("text", ["import (", None])
def test_the_command_names_a_file_that_it_cannot_rewrite(
    text: str | None,
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    file = tmp_path / "train.py"
    if text is not None:
        file.write_text(text)
    with pytest.raises(SystemExit) as stopped:
        run(monkeypatch, file)
    assert stopped.value.code == 2
    assert f"Cannot rewrite {file}: " in capsys.readouterr().err


@pytest.mark.long
def test_a_file_that_finds_no_room_is_as_it_was(tmp_path: pathlib.Path) -> None:
    file = tmp_path / "train.py"
    before = HEAD + "loss = tfr.keras.losses.ApproxNDCGLoss()\n" + "x = 1\n" * 2000
    file.write_text(before)
    limited = (
        "import resource, signal, sys; from tfrank_sel.migration.__main__ import main; "
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN); "
        "resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096)); main()"
    )
    command = [sys.executable, "-B", "-c", limited, "--write", str(file)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, file.read_text()) == (2, before)
    assert f"Cannot rewrite {file}: " in done.stderr
    assert list(tmp_path.iterdir()) == [file]
