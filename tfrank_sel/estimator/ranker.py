"""The estimator: a ranker with the conventions of scikit-learn."""

import contextlib
import dataclasses
import itertools
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, Self, TypeAlias

import keras
import numpy as np
from scipy import sparse
from sklearn.utils import Tags, check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from tfrank_sel import losses
from tfrank_sel.arguments import StrPath
from tfrank_sel.data.lists import Lists
from tfrank_sel.data.spec import FeatureSpec
from tfrank_sel.errors import received, refusal
from tfrank_sel.estimator import fitting
from tfrank_sel.estimator.fitting import GraphScorer
from tfrank_sel.estimator.lists import (
    check_comparable,
    groups_of,
    labels_of,
    rows_of,
    types_of,
    weights_of,
)
from tfrank_sel.export import export
from tfrank_sel.features import FeatureTypes, spans
from tfrank_sel.metrics.importance import importances
from tfrank_sel.training import has_lightgbm, trees
from tfrank_sel.training.candidates import (
    EFFORTS,
    Candidate,
    Trees,
    check_names,
    default_losses,
    unique_names,
)

MYPY = False  # mypy takes it for True; see `keras_versions`
if MYPY:

    class BaseEstimator:
        """`sklearn.base.BaseEstimator`."""

        def __getattr__(self, name: str) -> Any: ...
        def __getstate__(self) -> dict[str, Any]: ...
        def set_params(self, **params: Any) -> Self: ...
        def __sklearn_tags__(self) -> Tags: ...

else:
    from sklearn.base import BaseEstimator

Kind: TypeAlias = keras.losses.Loss | str  # of a model to train
MANY = 10_000_000  # numbers, for which half of the default models are trained
TREES = 100  # if no lists are held out
SUMMARY = ("epochs", "validation_ndcg", "adds")  # of the training of a model


def _loss_of(loss: Any) -> Any:
    """A loss by the name of its class, or what is no such name."""
    kind = getattr(losses, loss, None) if isinstance(loss, str) else None
    if isinstance(kind, type) and issubclass(kind, keras.losses.Loss):
        return kind()
    return loss


@contextlib.contextmanager
def _unchanged_by_errors(ranker: "Ranker") -> Iterator[None]:
    """Leaves a ranker as it was if its training ends with an error, or is interrupted."""
    before = dict(vars(ranker))
    try:
        yield
    except BaseException:
        ranker.__dict__ = before
        raise


@dataclasses.dataclass(eq=False, repr=False)
class Ranker(BaseEstimator):
    """A ranker of networks and boosted trees, with the conventions of scikit-learn.

    A network is a `models.ListScorer`: a multilayer perceptron over the features of an item and
    where each feature stands within its list. Lists are prepared once. Training stops when the mean
    NDCG@10 of held-out lists no longer rises, and keeps the averaged weights of the best epoch.
    Scores of several networks, and of LightGBM's trees on the same features, are averaged as
    `models.Ensemble` does.

    The items of a list are compared with each other: pass the same whole lists to `predict` that a
    user is shown, with their `qid`. Without `qid` and `group`, all rows are one list; `fit` warns
    of that. `predict` and `score` refuse more rows than the longest list of training has, or warn
    if `fit` had none of both, either.

    Args:
        loss: A loss such as `losses.LambdaLoss()`, or the name of its class, or a sequence of
            losses of different names, for networks alone. `set_params(loss__k=5)` sets an argument
            of a loss. None for the models of `tfrank-sel-pipelines run`: a network of
            `losses.RGCrossLoss()`, and, with half of the weight if LightGBM is installed, trees
            of `losses.MeanSquaredLoss()` and `losses.RGCrossLoss()`.
        members: Number of models, which take the losses in turn, each with another seed: without
            `loss` first a network, then trees, and so on. None for one for each loss;
            without `loss`, half as many for more than 10 million numbers in `X`.
        effort: Without `loss`, `"low"` for the trees alone, in less time; `"high"` for those of
            `lambdarank`, too, and networks of three losses, in more.
        features: Type of each feature by name, of `tfrank_sel.features`, for frames. None to
            choose a type for each column of a frame: `Number`, `Bool`, `Category`, `Set`, `Vector`
            or `Timestamp`. Columns that are not named are not used.
        hidden_units: Widths of the hidden layers.
        dropout: Share of the hidden units dropped in training, in [0, 1).
        num_heads: Heads of the attention between the items of a list; 0 for no attention.
        epochs: Maximum number of epochs.
        patience: Epochs without a better validation NDCG@10 before training stops; down to half as
            many for more than 10,000 lists.
        batch_size: Number of lists in a batch.
        learning_rate: Step size of Adam; positive.
        averaging: Decay of the averaged weights, in [0, 1).
        weight_decay: Share by which the weights decay in each epoch, decoupled from the gradient as
            in AdamW, in [0, 1).
        validation_fraction: Share of the lists that `fit` holds out for early stopping, at least
            one, if it gets no `eval_set`; None to train on all lists for all `epochs`. A single
            list is not held out.
        random_state: Seed of the split, the weights, the order of lists, and dropout: an integer, a
            `numpy.random.RandomState`, or None.
        verbose: As in `keras.Model.fit`: 0 is silent, 2 prints a line for each epoch. If it is not
            0, the time of each model and of `fit` is printed, too.

    Attributes:
        model_: The Keras model, which takes raw features.
        features_: Type of each feature by name; None if `X` was an array.
        history_: Values of each epoch or tree, by name, by the name of the loss; from the second
            model of a loss on, with its number, such as `softmax_loss_2`; of trees, with `_trees`.
        summary_: By the same names, number of epochs or trees, best validation NDCG@10, and what
            the model `adds` to that of the ensemble.
        n_iter_: Number of epochs run; the most of several networks, or of trees alone.
        fit_time_: Seconds that `fit` took.
        n_features_in_: Number of columns of `X`.
        feature_names_in_: Names of the columns, if `X` was a frame.
        feature_importances_: See the property.

    Inputs: `X` is an array of numbers `[rows, num_features]`, a SciPy sparse matrix, which is made
    dense, or a pandas or polars frame, of texts and times, too. Values may be missing; in an array
    they are NaN, and those of `fit` must have some if others have. A row is an item.

    Example:
        >>> random = np.random.default_rng(0)
        >>> X = random.normal(size=(600, 3))
        >>> y, qid = (X[:, 0] > 0.5).astype(int), np.repeat(np.arange(100), 6)
        >>> ranker = Ranker(members=2, epochs=5, random_state=0).fit(X, y, qid=qid)
        >>> scores = ranker.predict(X[:6], qid=qid[:6])
        >>> scores.shape, ranker.score(X, y, qid=qid) > 0.7
        ((6,), True)

    Reference:
        The default losses: see each. The place within the list: see `models.WithinList`.
    """

    # numbers of `training.Settings`, written out for readers of the signature; a test compares them
    loss: Kind | Sequence[Kind] | None = None
    _: dataclasses.KW_ONLY
    members: int | None = None
    effort: str = "default"
    features: FeatureTypes | None = None
    hidden_units: Sequence[int] = (64, 32)
    dropout: float = 0.3
    num_heads: int = 0
    epochs: int = 60
    patience: int = 10
    batch_size: int = 16
    learning_rate: float = 1e-3
    averaging: float = 0.98
    weight_decay: float = 0.03
    validation_fraction: float | None = 0.1
    random_state: int | np.random.RandomState | None = None
    verbose: int = 0

    # of a ranker that an earlier version fitted
    _may_miss = _has_lists = False

    # with metadata routing, `qid` is passed on unless a user says otherwise
    __metadata_request__fit: ClassVar = {"qid": True}
    __metadata_request__predict: ClassVar = {"qid": True}
    __metadata_request__score: ClassVar = {"qid": True}

    def fit(
        self,
        X: Any,
        y: Any,
        *,
        qid: Any = None,
        group: Any = None,
        sample_weight: Any = None,
        eval_set: Sequence[tuple[Any, Any]] | None = None,
        eval_qid: Sequence[Any] | None = None,
        eval_group: Sequence[Any] | None = None,
    ) -> Self:
        """Trains the ranker.

        Args:
            X: Features of the items.
            y: Relevance of each item, `[rows]`; not negative.
            qid: Identifier of the query of each row, `[rows]`. The rows of a query need not be
                adjacent.
            group: Instead of `qid`, the number of rows of each list, if its rows are adjacent.
            sample_weight: Weight of each row, `[rows]`, or of each list, `[num_lists]`, in the
                order of the first rows; a list's weight is that of all its items.
            eval_set: `[(X, y)]`: lists that decide when to stop, in place of those held out.
            eval_qid: `[qid]` of `eval_set`.
            eval_group: `[group]` of `eval_set`.

        Raises:
            ValueError: If a parameter is out of range, an argument has another shape, or no list
                has two different labels.
            TypeError: If a parameter is of another type.
            tfrank_sel.data.InputError: If a value of a frame is not of its type.
        """
        with _unchanged_by_errors(self):
            began = time.perf_counter()
            given, seed = self.get_params(deep=False), self._drawn_seed()
            names = {field.name for field in dataclasses.fields(fitting.Parameters)}
            own = {name: value for name, value in given.items() if name in names}
            settings = fitting.Parameters(**own, seed=seed)
            networks, forests = self._losses()
            validate_data(self, X, y, skip_check_array=True)
            is_frame = hasattr(self, "feature_names_in_")
            if self.features is not None and not is_frame:
                raise refusal("`features` needs a frame with named columns", type(X))
            self.features_ = dict(self.features or types_of(X)) if is_frame else None
            self._longest = 0
            learned = self._lists(X, y, qid, group, sample_weight)
            self._longest = int(learned.sizes.max())
            self._has_lists = qid is not None or group is not None
            self._may_miss = bool(np.isnan(learned.features).any())
            held_out = self._held_out_lists(eval_set, eval_qid, eval_group)
            if held_out is None:
                learned, held_out = learned.split(settings.validation_fraction, seed)
            check_comparable(learned)
            size = learned.features.size
            candidate = self._candidate(networks, forests, size, held_out is not None)
            candidate.check(learned.labels)
            trained = fitting.train(candidate, learned, held_out, self.features_, settings)
            self.model_ = trained.model
            self.history_ = {fit.loss: dict(fit.history) for fit in trained.fits}
            self.summary_ = {
                fit.loss: {name: getattr(fit, name) for name in SUMMARY} for fit in trained.fits
            }
            unit = trained.fits[0].unit
            self.n_iter_ = max(fit.epochs for fit in trained.fits if fit.unit == unit)
            num_texts = 0 if learned.texts is None else learned.texts.shape[1]
            self._scorer = GraphScorer(self.model_, learned.features.shape[1], num_texts)
            self._seed = seed
            self._measured: Lists | None = held_out or learned
            self._importances: np.ndarray | None = None
            self.fit_time_ = time.perf_counter() - began
            if settings.verbose:
                print(f"{len(trained.fits)} models in {self.fit_time_:.1f} s")
        return self

    def predict(self, X: Any, *, qid: Any = None, group: Any = None) -> np.ndarray:
        """Returns the score of each row, `[rows]`, float32, in the order of the rows.

        The best item of a list has the highest score. Do not compare scores of different lists.

        Args:
            X: Features of the items.
            qid: As in `fit`.
            group: As in `fit`.

        Raises:
            sklearn.exceptions.NotFittedError: If the ranker is not trained.
            ValueError: If an argument has another shape.
        """
        check_is_fitted(self)
        lists, order = self._read(X, qid, group)
        scores = np.empty(len(order), np.float32)
        scores[order] = self._scorer.scores(lists)
        return scores

    def score(
        self, X: Any, y: Any, *, qid: Any = None, group: Any = None, sample_weight: Any = None
    ) -> float:
        """Returns the mean NDCG@10 of the lists, with the gain `2^y - 1`, in [0, 1].

        It is averaged over the orders of items with equal scores. A list without a relevant item is
        0, as in TREC evaluation.

        Args:
            X: Features of the items.
            y: Relevance of each item, `[rows]`.
            qid: As in `fit`.
            group: As in `fit`.
            sample_weight: As in `fit`; a list weighs as much as its items do on average.

        Raises:
            sklearn.exceptions.NotFittedError: If the ranker is not trained.
            ValueError: If an argument has another shape.
        """
        check_is_fitted(self)
        lists = self._lists(X, y, qid, group, sample_weight)
        weights = None
        if lists.weights is not None:
            means = np.add.reduceat(lists.weights, lists.offsets[:-1]) / lists.sizes
            weights = means[np.argsort(lists.sizes, kind="stable")]
        return float(np.average(self._scorer.ndcgs(lists), weights=weights))

    @property
    def feature_importances_(self) -> np.ndarray:
        """Mean drop of NDCG@10 when a column is shuffled within each list, `[n_features_in_]`.

        It is computed at first use, from five shuffles of the lists that decided when to stop or,
        without such lists, of the training lists. `random_state` seeds the shuffles. A feature of
        the query and a column that is not used have 0. A pickle holds no lists: read the
        importances before you pickle the ranker, and the pickle holds them.
        """
        check_is_fitted(self)
        if self._importances is None:
            if self._measured is None:
                raise AttributeError(
                    "`feature_importances_` needs the lists of `fit`, which a pickle does not "
                    "hold. Read it before you pickle the ranker."
                )
            self._importances = self._drops(self._measured)
        return self._importances

    def export(self, path: StrPath, **options: Any) -> None:
        """Writes the ranker as a SavedModel for TensorFlow Serving: see `tfrank_sel.export.export`.

        A server takes the columns of a ranker that was trained on a frame by name, and packed
        features for a ranker that was trained on an array.

        Args:
            path: Folder to write; it must not exist.
            **options: As in `tfrank_sel.export.export`: `top_k`, `doc_id`, `examples`, `metadata`.

        Raises:
            sklearn.exceptions.NotFittedError: If the ranker is not trained.
            FileExistsError: If `path` exists.
        """
        check_is_fitted(self)
        spec = self.features_ or FeatureSpec(num_features=self.n_features_in_)
        export(self.model_, spec, path, **options)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = tags.target_tags.positive_only = True
        tags.input_tags.sparse = tags.input_tags.allow_nan = True
        return tags

    def __getstate__(self) -> dict[str, Any]:
        state: dict[str, Any] = super().__getstate__()
        # the lists of users stay out of a pickle
        return {**state, "_measured": None} if "_measured" in state else state

    def set_params(self, **params: Any) -> Self:
        """Sets parameters, also arguments of the loss, such as `loss__temperature=2.0`."""
        start = "loss__"
        of_loss = {x.removeprefix(start): y for x, y in params.items() if x.startswith(start)}
        super().set_params(**{x: y for x, y in params.items() if not x.startswith(start)})
        if of_loss:
            loss = _loss_of(self.loss)
            config = loss.get_config() if isinstance(loss, keras.losses.Loss) else {}
            if lacking := [x for x in of_loss if x not in config]:
                raise refusal(
                    f"`{start}` must be followed by one of {', '.join(config) or 'nothing'}",
                    repr(lacking[0]),
                )
            plain = {x: keras.saving.serialize_keras_object(y) for x, y in of_loss.items()}
            self.loss = type(loss).from_config({**config, **plain})
        return self

    def _losses(self) -> tuple[Sequence[Kind], Sequence[Kind]]:
        """The losses of networks and of trees: those of the user, or those of the default."""
        if self.effort not in EFFORTS:
            raise refusal(f"`effort` must be one of {', '.join(EFFORTS)}", self.effort)
        if self.loss is None:
            has_trees = self.effort == "low" or has_lightgbm()
            forests = default_losses(True, self.effort) if has_trees else ()
            return default_losses(False, self.effort), forests
        if self.effort != "default":
            raise refusal("`effort` must be 'default' with a `loss`", self.effort)
        is_one = isinstance(self.loss, str) or not isinstance(self.loss, Sequence)
        chosen = [_loss_of(x) for x in ([self.loss] if is_one else self.loss)]
        if not chosen or not all(isinstance(loss, keras.losses.Loss) for loss in chosen):
            expected = "`loss` must be None, a loss, the name of its class, or a sequence of losses"
            raise TypeError(received(expected, repr(self.loss)))
        check_names("loss", chosen)
        return chosen, ()

    def _candidate(
        self, networks: Sequence[Kind], forests: Sequence[Kind], size: int, is_measured: bool
    ) -> Candidate:
        """The models to train, with copies of the losses, so that training changes no parameter."""
        of_default, kinds = self.loss is None, [*networks, *forests]
        count = -(-len(kinds) // 2) if of_default and size > MANY else len(kinds)
        turns, rest = divmod(self.members or count, len(kinds))
        in_turn = itertools.chain.from_iterable(itertools.zip_longest(networks, forests))
        first = [x for x in in_turn if x is not None][:rest]

        def copies(losses: Sequence[Kind]) -> list[Any]:
            chosen = [*losses] * turns + [x for x in losses if x in first]
            copied = [
                x if isinstance(x, str) else type(x).from_config(x.get_config()) for x in chosen
            ]
            for loss, name in zip(copied, unique_names(map(trees.name_of, copied)), strict=True):
                if not isinstance(loss, str):
                    loss.name = name
            return copied

        of_trees, parameters = copies(forests), {} if is_measured else {trees.MOST: TREES}
        return Candidate(copies(networks), trees=Trees(of_trees, parameters) if of_trees else None)

    def _drawn_seed(self) -> int:
        if isinstance(self.random_state, int | np.integer):
            return int(self.random_state)
        return int(check_random_state(self.random_state).randint(2**31 - 1))

    def _read(self, X: Any, qid: Any, group: Any) -> tuple[Lists, np.ndarray]:
        """The lists without labels, and the indices of the rows, list by list."""
        if self.features_ is None:
            finite = {"dtype": np.float32, "ensure_all_finite": "allow-nan"}
            X = validate_data(self, X, reset=False, accept_sparse="csr", **finite)
            if self._longest and not self._may_miss and np.isnan(X.sum()):
                raise refusal(
                    "`X` must have no missing number, since that of `fit` had none", "NaN"
                )
        else:
            validate_data(self, X, reset=False, skip_check_array=True)
            if not hasattr(X, "columns"):
                raise refusal("`X` must be a frame, as in `fit`", type(X))
        rows = X.shape[0]
        if qid is None and group is None and rows > self._longest:
            message = f"`qid` and `group` are missing: all {rows} rows are ranked as one list"
            if self._longest and self._has_lists:
                raise ValueError(f"{message}, but the longest one of `fit` has {self._longest}")
            warnings.warn(message, stacklevel=4)
        sizes, order = groups_of(rows, qid, group)
        if self.features_ is not None:
            table, schema = rows_of(X, self.features_)
            return Lists.of_rows(table.take(order), sizes, schema), order
        X = X[order]
        return Lists.of(sizes, X.toarray() if sparse.issparse(X) else X), order

    def _lists(self, X: Any, y: Any, qid: Any, group: Any, sample_weight: Any = None) -> Lists:
        lists, order = self._read(X, qid, group)
        labels = labels_of(y, len(order))[order]
        return Lists.of(
            lists.sizes,
            lists.features,
            lists.texts,
            label=labels,
            weight=weights_of(sample_weight, lists.sizes, order),
        )

    def _held_out_lists(self, eval_set: Any, eval_qid: Any, eval_group: Any) -> Lists | None:
        """The lists that a user holds out."""
        lengths = [None if x is None else len(x) for x in (eval_set, eval_qid, eval_group)]
        if lengths == [None, None, None]:
            return None
        if lengths[0] is None or {*lengths} - {None, 1}:
            expected = "`eval_set` must be [(X, y)], with `eval_qid` [qid] or `eval_group` [group]"
            raise ValueError(f"{expected}. Received lengths: {lengths}")
        [[X, y]], [qid], [group] = eval_set, eval_qid or [None], eval_group or [None]
        return self._lists(X, y, qid, group)

    def _drops(self, lists: Lists) -> np.ndarray:
        """The mean drop of NDCG@10 of lists for each column of `X`."""

        def values(items: Mapping[str, np.ndarray]) -> np.ndarray:
            matrices = items["features"], items.get("texts")
            return self._scorer.ndcgs(Lists.of(lists.sizes, *matrices, label=lists.labels))

        items = {"features": lists.features}
        items |= {} if lists.texts is None else {"texts": lists.texts}
        measured = importances(values, items, lists.sizes, self._columns(), seed=self._seed)
        return np.array([importance.drop for importance in measured.values()])

    def _columns(self) -> dict[str, list[tuple[str, int]]]:
        """The columns of the matrices for each column of `X`, by name or index."""
        if self.features_ is None:
            return {str(column): [("features", column)] for column in range(self.n_features_in_)}
        columns: dict[str, list[tuple[str, int]]] = {name: [] for name in self.feature_names_in_}
        for name, _, is_text, span in spans(self.features_):
            matrix = "texts" if is_text else "features"
            columns[name] = [(matrix, column) for column in range(span.start, span.stop)]
        return columns
