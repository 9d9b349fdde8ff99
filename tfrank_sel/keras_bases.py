"""The bases of losses and metrics: those of Keras, or here on NumPy, which needs no Keras."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypedDict

from tfrank_sel import numerics as xp
from tfrank_sel.errors import received, refusal
from tfrank_sel.numerics.backend import OF_KERAS

MYPY = False  # mypy takes it for True
REDUCTIONS = ("sum_over_batch_size", "mean", "mean_with_sample_weight", "sum", "none", None)


class MetricOptions(TypedDict, total=False):
    """Arguments that a constructor passes on to `keras.metrics.Metric`."""

    name: str
    dtype: str


class LossOptions(MetricOptions, total=False):
    """Arguments that a constructor passes on to `keras.losses.Loss`."""

    reduction: str | None


def check_backend(name: str) -> None:
    """Raises an error if Keras has another backend than this."""
    import keras

    if keras.backend.backend() != name:
        raise _refusal(keras.backend.backend())


def _refusal(name: str) -> ImportError:
    return ImportError(
        received(
            "tfrank_sel needs the TensorFlow backend of Keras: set KERAS_BACKEND=tensorflow in "
            "the environment before Keras is imported, or in ~/.keras/keras.json. Losses and "
            "metrics also run on jax, and compute values on numpy",
            f"keras.backend.backend()={name!r}",
        )
    )


# Keras has no types that mypy reads. Of a class with an unread base it would take any argument.
if MYPY or (not TYPE_CHECKING and xp.NAME == "numpy"):
    if OF_KERAS not in xp.BACKENDS:
        raise _refusal(OF_KERAS)

    class _Loss:
        """`keras.losses.Loss`."""

        def __init__(
            self,
            name: str | None = None,
            reduction: str | None = "sum_over_batch_size",
            dtype: str | None = None,
        ) -> None:
            if reduction not in REDUCTIONS:
                expected = f"`reduction` must be one of {', '.join(map(repr, REDUCTIONS))}"
                raise refusal(expected, reduction=reduction)
            self.name: Any = name
            self.reduction, self.dtype = reduction, dtype or "float32"

        def get_config(self) -> dict[str, Any]:
            """Returns the arguments."""
            return {"name": self.name, "reduction": self.reduction, "dtype": self.dtype}

        def call(self, y_true: Any, y_pred: Any) -> Any:
            """Computes the loss of each list; a subclass implements it."""
            raise NotImplementedError

        def __call__(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> Any:
            values = xp.cast(self.call(y_true, y_pred), self.dtype)
            weights = xp.cast(1.0 if sample_weight is None else sample_weight, self.dtype)
            weights = xp.broadcast_to(weights, xp.shape(values))
            values = values * weights
            if self.reduction in (None, "none"):
                return values
            total = xp.reduce_sum(values)
            if self.reduction == "sum":
                return total
            is_of_weights = (
                self.reduction == "mean_with_sample_weight" and sample_weight is not None
            )
            count = (
                xp.reduce_sum(weights) if is_of_weights else xp.cast(xp.size(values), self.dtype)
            )
            return xp.divide_no_nan(total, count)

    class _Metric:
        """`keras.metrics.Metric`."""

        def __init__(self, name: str | None = None, dtype: str | None = None) -> None:
            self.name: Any = name
            self.dtype = dtype or "float32"
            self.variables: list[Any] = []

        def get_config(self) -> dict[str, Any]:
            """Returns the arguments."""
            return {"name": self.name, "dtype": self.dtype}

        def __call__(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> Any:
            self.update_state(y_true, y_pred, sample_weight)
            return self.result()

        def add_weight(self, name: str, shape: Sequence[int] = (), **_: Any) -> Any:
            """Makes a part of the state, of zeros."""
            self.variables.append(xp.Variable(xp.zeros(shape, self.dtype), name=name))
            return self.variables[-1]

        def update_state(self, *args: Any, **kwargs: Any) -> Any:
            """Adds a batch; a subclass implements it."""
            raise NotImplementedError

        def reset_state(self) -> None:
            """Forgets all batches."""
            for variable in self.variables:
                variable.assign(xp.zeros_like(xp.convert_to_tensor(variable)))

        def result(self) -> Any:
            """Returns the value; a subclass implements it."""
            raise NotImplementedError

    class _Mean(_Metric):
        """`keras.metrics.Mean`."""

        def __init__(self, name: str | None = None, dtype: str | None = None) -> None:
            super().__init__(name, dtype)
            self.total, self.count = self.add_weight("total"), self.add_weight("count")

        def update_state(self, *args: Any, **kwargs: Any) -> Any:
            """Adds values and weights."""
            self._add(*args, **kwargs)

        def _add(self, values: Any, sample_weight: Any = None) -> None:
            weights = xp.cast(1.0 if sample_weight is None else sample_weight, self.dtype)
            weights = xp.broadcast_to(weights, xp.shape(values))
            self.total.assign_add(xp.reduce_sum(values * weights))
            self.count.assign_add(xp.reduce_sum(weights))

        def result(self) -> Any:
            """Returns the mean; 0 without weights."""
            return xp.divide_no_nan(*map(xp.convert_to_tensor, self.variables))

    Loss = _Loss
    Metric = _Metric
    Mean = _Mean
else:
    check_backend(xp.NAME)
    import keras
    from keras.losses import Loss as Loss
    from keras.metrics import Mean as Mean, Metric as Metric

    if keras.__version__.startswith("2."):

        class _Keras2Loss(Loss):
            """Adds to the losses of Keras 2 the `dtype` of Keras 3."""

            def __init__(
                self,
                name: str | None = None,
                reduction: str | None = "sum_over_batch_size",
                dtype: str | None = None,
            ) -> None:
                super().__init__(name=name, reduction=reduction or "none")
                self.dtype = dtype or keras.backend.floatx()

            def call(self, y_true: Any, y_pred: Any) -> Any:
                """Computes the loss of each list; a subclass implements it."""
                raise NotImplementedError

        if not TYPE_CHECKING:
            Loss = _Keras2Loss
