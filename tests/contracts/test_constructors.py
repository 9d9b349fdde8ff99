"""Contracts of public constructors: an invalid argument raises an error that names it."""

import contextlib
import copy
import dataclasses
import importlib.util
import inspect
import math
import pathlib
import pickle
import re
import types
from collections.abc import Iterator
from typing import Any, Literal

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.cases import EVERY_LOSS, EVERY_METRIC, LINKS
from tfrank_sel import callbacks, data, links, losses, metrics, models
from tfrank_sel.arguments import Checked, Positive
from tfrank_sel.listwise import Listwise
from tfrank_sel.losses import lambdas, margin, targets
from tfrank_sel.metrics import averaging, ties
from tfrank_sel.ops.pairs import Items
from tfrank_sel.serialization import Configurable

Arguments = dict[str, Any]

MODULES = [callbacks, data, links, losses, metrics, models]
MODULES += [averaging, lambdas, margin, targets, ties]

FORMULAS = EVERY_LOSS + EVERY_METRIC

# arguments with which each public class is made
EXAMPLES: dict[type, Arguments] = {
    **{type(case.link): case.link.arguments() for case in LINKS},
    **{
        case.make.func: inspect.signature(case.make.func)
        .bind(*case.make.args, **case.make.keywords)
        .arguments
        for case in FORMULAS
    },
    links.CompositeSoftmax: {"scaling": links.Exp()},
    losses.CatalogueLoss: {"loss": losses.SoftmaxLoss()},
    **{
        cls: {}
        for cls in (
            averaging.AllLists,
            averaging.ByRelevance,
            averaging.DefinedLists,
            lambdas.DCGLambdaWeight,
            lambdas.LabelDiffLambdaWeight,
            lambdas.NDCGLambdaWeight,
            lambdas.NDCGLambdaWeightV2,
            lambdas.SwapLambdaWeight,
            lambdas.YetiDCGLambdaWeight,
            margin.ArcFace,
            margin.CosFace,
            margin.NormFace,
            models.WithinList,
            targets.Gains,
            targets.Shares,
            targets.Softmax,
            ties.Averaged,
            ties.InOrder,
            ties.Reversed,
            ties.Shuffled,
        )
    },
    lambdas.CallbackLambdaWeight: {"function": lambda first, second: first.labels},
    lambdas.PrecisionLambdaWeight: {"k": 2},
    metrics.Evaluator: {"metrics": [metrics.MRR()]},
    models.BoostedTrees: {"num_trees": 1, "num_nodes": 3, "depth": 1, "num_features": 2},
    models.CosineClassifier: {"classes": 3},
    models.Dropout: {"rate": 0.5},
    models.SoftTopK: {"k": 2.0},
    models.Ensemble: {"members": [models.Scorer([0.0], [1.0])], "shares": [2.0]},
    models.ListScorer: {"mean": [0.0], "variance": [1.0]},
    models.LogQCorrection: {"num_buckets": 4},
    models.Perceptron: {},
    models.Preparation: {"mean": [0.0], "variance": [1.0]},
    models.Prepared: {
        "preparation": models.Preparation([0.0], [1.0]),
        "network": models.Perceptron(),
    },
    models.Recalibrated: {
        "model": models.Scorer([0.0], [1.0]),
        "slope": 1.0,
        "intercept": 0.0,
        "knots": [0.0, 1.0],
        "values": [0.25, 0.5],
    },
    models.Scorer: {"mean": [0.0], "variance": [1.0]},
    models.SequenceEncoder: {"num_items": 2, "num_factors": 2},
    models.TwoTower: {"num_users": 2, "num_items": 2, "num_factors": 2},
    data.Cache: {"folder": pathlib.Path("lists"), "sizes": np.ones(1, int), "parts": {}},
    data.FeatureSpec: {"num_features": 2},
    data.ItemList: {
        "query_id": "1",
        "labels": np.zeros([1]),
        "features": np.zeros([1, 2]),
        "doc_ids": ("a",),
    },
    data.ListFeatures: {"items": {"x": tf.io.FixedLenFeature([], tf.float32)}},
    callbacks.AnnealTau: {"loss": losses.SmoothTopKLoss(2), "schedule": lambda step: 1.0},
    callbacks.LogSoftmaxBounds: {"log_dir": "logs", "validation_data": tf.data.Dataset.range(1)},
}

if importlib.util.find_spec("numba") is not None:  # the extra `als`
    from tfrank_sel.models import als

    MODULES.append(als)
    EXAMPLES |= {x: {} for x in (als.RG2, als.RGCross, als.RGFactorizer, als.WeightedSquare)}
    EXAMPLES[als.ItemSolver] = {"inputs": np.ones([2, 3]), "targets": np.ones([2, 3], int)}

every_class = pytest.mark.parametrize("cls", EXAMPLES, ids=lambda cls: cls.__name__)

WORDS = ["name", "dtype", "reduction", "device", "log_dir", "query_id"]  # that any string may be
WORDS += [field.name for field in dataclasses.fields(data.FeatureSpec)[1:]]
WORDS += ["mask", "size", "label"]


def constructors(cls: type) -> Iterator[tuple[str, inspect.Parameter]]:
    """The arguments of a class: its own, and those by keyword that its bases take."""
    found: dict[str, inspect.Parameter] = {}
    for base in cls.__mro__:
        if base.__module__.startswith("tfrank_sel") and "__init__" in vars(base):
            _, *own = inspect.signature(base.__init__).parameters.values()
            for p in own:
                if p.kind is p.KEYWORD_ONLY or (p.kind is not p.VAR_KEYWORD and not found):
                    found.setdefault(p.name, p)
            if not any(p.kind is p.VAR_KEYWORD for p in own):
                break
    yield from found.items()


def wrong_types(name: str, annotation: Any) -> Iterator[Any]:
    hint = annotation.__name__ if isinstance(annotation, type) else str(annotation)
    yield from (object(), object, [object()], math.nan, b"bytes", 1j)
    if name not in WORDS:
        yield "no such option"
    if "float" not in hint:
        yield 10.5
    if "Annotated" not in hint:
        yield math.inf
    if "bool" not in hint:
        yield True


def refused(cls: type, name: str, value: Any) -> None:
    with pytest.raises((TypeError, ValueError), match=rf"`{name}`") as told:
        cls(**{**EXAMPLES[cls], name: value})
    assert "Received" in str(told.value)


@pytest.mark.sample(4)
@every_class
def test_a_value_of_a_wrong_type_is_refused_by_name(cls: type) -> None:
    cls(**EXAMPLES[cls])
    for name, parameter in constructors(cls):
        for value in wrong_types(name, parameter.annotation):
            refused(cls, name, value)


@pytest.mark.sample(2)
@every_class
def test_a_number_out_of_the_documented_range_is_refused_by_name(cls: type) -> None:
    document = "\n".join(inspect.getdoc(base) or "" for base in cls.__mro__)
    for name, parameter in constructors(cls):
        described = re.search(rf"^    {name}: ((?:.|\n     )*)", document, re.MULTILINE)
        if described is None or not re.search("int|float", str(parameter.annotation)):
            continue
        text, is_list = described[1], "Sequence" in str(parameter.annotation)
        if re.search(r"\bpositive\b", text) or re.search(
            rf"`{name}`( or `\w+`)? is not positive", document
        ):
            refused(cls, name, [0, 1] if is_list else 0)
        if re.search(r"\bpositive\b|at least 0|not negative|in \[0", text):
            refused(cls, name, [-1, 1] if is_list else -1)


NOT_POSITIVE = [0.0, -1.0, math.inf, math.nan]
OUT_OF_RANGE: list[tuple[type, str, list[Any]]] = [
    (links.Exp, "shift", [math.nan]),
    (links.Huber, "half_width", NOT_POSITIVE),
    (links.Interpolated, "high", [-1.5, math.nan]),
    (links.Interpolated, "values", [[0.0, 1.0], [0.0, 2.0, 1.0], [0.0, math.nan, 1.0]]),
    (links.Inverse, "link", [links.Step()]),
    (links.PiecewiseLinear, "knots", [[1.0, 1.0, 1.0]]),
    (links.PiecewiseLinear, "slope_below", [-1.0]),
    (links.PiecewiseLinear, "values", [[1.0, 0.0, 2.0]]),
    (links.Power, "exponent", NOT_POSITIVE),
    (links.Scaled, "factor", NOT_POSITIVE),
    (links.Sigmoid, "scale", NOT_POSITIVE),
    (links.Staircase, "jumps", [[0.0]]),
    (links.Staircase, "thresholds", [[math.nan]]),
    (links.Sum, "links", [[]]),
    (lambdas.NDCGLambdaWeight, "smooth_fraction", [1.5]),
    (losses.ApproxMRRLoss, "link", [links.Tanh()]),
    (losses.CoupledRankDistilLoss, "k", [-1]),
    (losses.ContrastiveMatchingLoss, "link", [links.Exp(), links.Sinh(shift=1.0)]),
    (losses.DirectAPLoss, "epsilon", [0.0]),
    (losses.FenchelYoungLoss, "link", [links.Step()]),
    (losses.InBatchInfoNCELoss, "log_q", [[0.0, -math.inf], [[0.0, -1.0]]]),
    (losses.MarginSoftmaxLoss, "scale", [0.0]),
    (losses.MultiClassLoss, "num_classes", [1]),
    (losses.NWayPairwiseLoss, "class_weights", [[1.0, 0.0]]),
    (losses.PairwiseHingeLoss, "temperature", [0.0]),
    (losses.PairwiseQuantileLoss, "tau", [1.0]),
    (losses.PolyOneSoftmaxLoss, "epsilon", [-2.0]),
    (losses.SelectiveSigmoidCrossEntropyLoss, "gamma", NOT_POSITIVE),
    (losses.SelectiveSoftmaxLoss, "gamma", NOT_POSITIVE),
    (losses.SelectiveSoftmaxLoss, "log_rho", [[math.inf]]),
    (losses.SmoothTopKLoss, "dtype", ["float16"]),
    (losses.SmoothTopKLoss, "margin", [-1.0]),
    (losses.SmoothTopKLoss, "tau", [0.0]),
    (losses.SoftRankLoss, "k", [0]),
    (margin.ArcFace, "margin", [2.0]),
    (margin.CosFace, "margin", [-0.1]),
    (metrics.AlphaDCG, "alpha", [1.5]),
    (metrics.ERR, "max_label", [0.0]),
    (metrics.RBP, "persistence", [1.0]),
    (models.ListScorer, "hidden_units", [[]]),
    (models.ListScorer, "num_heads", [3]),
    (models.LogQCorrection, "alpha", [0.0, 2.0]),
    (models.LogQCorrection, "temperature", [0.0]),
    (models.Scorer, "dropout", [1.0]),
    (models.Scorer, "hidden_units", [[0]]),
    (models.Scorer, "mean", [[], [0.0, 0.0]]),
    (models.Scorer, "variance", [[-1.0]]),
    (models.TwoTower, "num_users", [0]),
]


@pytest.mark.parametrize(
    ("cls", "name", "values"), OUT_OF_RANGE, ids=[f"{c.__name__}-{n}" for c, n, _ in OUT_OF_RANGE]
)
def test_a_value_that_makes_no_sense_is_refused_by_name(
    cls: type, name: str, values: list[Any]
) -> None:
    for value in values:
        refused(cls, name, value)


@pytest.mark.sample(8)
@every_class
def test_numbers_of_numpy_are_numbers(cls: type) -> None:
    defaults = {name: parameter.default for name, parameter in constructors(cls)}
    for name, value in {**defaults, **EXAMPLES[cls]}.items():
        if isinstance(value, (int, float)):
            made = getattr(cls(**{**EXAMPLES[cls], name: np.array([value])[0]}), name)
            # those of NumPy have a dtype, which an operation of a graph may not match
            assert made == value
            # constructed by Keras, and by a decorator
            if issubclass(cls, Configurable) and cls not in (models.Dropout, data.FeatureSpec):
                assert type(made) is type(value)


@pytest.mark.sample(4)
@every_class
def test_an_object_is_printed_as_its_class_and_arguments(cls: type) -> None:
    name, arguments = cls.__name__, EXAMPLES[cls]
    shown = repr(cls(**arguments))
    assert name in shown
    # a layer of Keras 2 without arguments of its own is printed by Keras
    assert not issubclass(cls, Checked) or " at 0x" not in shown.partition("<function")[0]
    assert all(re.search(rf"\b{x}=", shown) or repr(arguments[x]) not in shown for x in arguments)


@pytest.mark.sample(4)
@every_class
def test_help_begins_with_a_call(cls: type) -> None:
    text = str(inspect.signature(cls))
    if issubclass(cls, Configurable) and cls is not data.FeatureSpec:
        assert not re.search(r": |->|<|typing|collections\.abc", text)
    # a program still reads types and defaults
    assert all(p.annotation is not p.empty for _, p in constructors(cls) if p.name != "kwargs")


@pytest.mark.sample(4)
@every_class
def test_dir_shows_names_for_users(cls: type) -> None:
    made = cls(**EXAMPLES[cls])
    if isinstance(made, Listwise):
        [of_keras] = {x for x in (keras.losses.Loss, keras.metrics.Mean) if issubclass(cls, x)}
        shown = {x for x in {*dir(made)} - {*dir(of_keras)} if not x.startswith("_")}
        hooks = shown - set(dict(constructors(cls))) - {*vars(made)}
        assert hooks <= {"curve", "evaluate", "over_ties", "probabilities", "variables"}


def members(module: types.ModuleType) -> Iterator[Any]:
    for name in dir(module):
        with contextlib.suppress(ImportError):  # it needs an extra
            yield getattr(module, name)


def test_no_public_class_is_missing() -> None:
    public = {
        x
        for module in MODULES
        for x in members(module)
        if inspect.isclass(x) and x.__module__.startswith(module.__name__)
        if not inspect.isabstract(x) and not x.__name__.startswith("_")
        if not issubclass(x, (tuple, Exception, ties.Ranks))  # which the package makes
        if x is not data.Schema  # which a reader makes
        if x not in (data.Lists, data.Rejected, data.Sequences)  # which readers make
    }
    assert public
    assert public <= set(EXAMPLES)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: metrics.NDCG(10.5), "`k` of NDCG must be an integer or None. Received: k=10.5"),
        (lambda: metrics.NDCG(ties="average"), "Averaged, InOrder, Reversed or Shuffled"),
        (lambda: metrics.NDCG(gain="exp"), "a function such as tfrank_sel.ops.ranking.exponential"),
        (lambda: losses.SoftmaxLoss(targets="softmax"), "Shares or Softmax (tfrank_sel.losses.tar"),
        (lambda: losses.ApproxNDCGLoss(link="sigmoid"), "a subclass of Link (tfrank_sel.links)"),
        (lambda: losses.MatchingLoss(links.Exp), "a subclass of Link (tfrank_sel.links)"),
        (lambda: models.Scorer([0.0, "x"], [1.0, 1.0]), "each item is a finite number"),
    ],
)
def test_the_error_says_what_is_accepted(make: types.FunctionType, message: str) -> None:
    with pytest.raises(TypeError, match=re.escape(message)):
        make()


def test_a_class_of_a_user_is_checked_too() -> None:
    class TopGrade(metrics.ListwiseMetric):
        def __init__(self, grade: int, name: str | None = None, **kwargs: Any) -> None:
            super().__init__(name, **kwargs)
            self.grade = grade

        def per_list(
            self, labels: tf.Tensor, scores: tf.Tensor, mask: tf.Tensor, weights: tf.Tensor
        ) -> tf.Tensor:
            return tf.reduce_max(labels, axis=1) / float(self.grade)

    assert TopGrade(4).name == "top_grade_grade_4"
    assert float(TopGrade(4)([[2.0, 0.0]], [[0.0, 1.0]])) == 0.5
    with pytest.raises(TypeError, match="`grade` of TopGrade must be an integer"):
        TopGrade("A")
    with pytest.raises(TypeError, match="`averaging` of TopGrade"):
        TopGrade(4, averaging="all")


def test_a_value_of_a_user_is_a_dataclass_with_and_without_a_decorator() -> None:
    class Plain(lambdas.LambdaWeight):
        base: Positive = 2.0

        def pairs(self, first: Items, second: Items) -> tf.Tensor:
            return tf.abs(self.base**first.labels - self.base**second.labels)

    @dataclasses.dataclass(frozen=True)
    class Decorated(Plain):
        top: float = 1.0

    assert Plain(3.0) == Plain(base=3.0) != Plain()
    assert hash(Decorated(3.0, 2.0)) == hash(Decorated(3.0, 2.0))
    assert dataclasses.replace(Decorated(), top=5.0).arguments() == {"base": 2.0, "top": 5.0}
    with pytest.raises(dataclasses.FrozenInstanceError):
        Decorated().top = 3.0
    with pytest.raises(ValueError, match="`base` must be positive"):
        Decorated(base=0.0)


def test_annotations_that_say_nothing_check_nothing() -> None:
    class Odd(Checked):
        def __init__(
            self,
            word: Literal["a", "b"],
            known: "OnlyForTypeCheckers" = 3,  # noqa: F821
        ) -> None:
            self.word, self.known = word, known

    class Implicit(Checked):
        def __init__(self, k: int = None, kind: Literal["a", "b"] = "a") -> None:  # noqa: RUF013
            self.k, self.kind = k, kind

    assert Odd("c", "x").word == "c"
    assert Implicit(None, "c").kind == "c"
    with pytest.raises(TypeError, match="`k` of Implicit must be an integer"):
        Implicit(1.5)


def test_copies_are_made_without_arguments() -> None:
    link = links.Exp(scale=2.0)
    assert copy.deepcopy(link) == pickle.loads(pickle.dumps(link)) == link
