"""Tensors of TensorFlow: its own functions, and what other backends have by other means."""

import functools
from collections.abc import Callable, Hashable
from typing import Any, TypeVar

import tensorflow as _tf
from tensorflow import (
    DType as DType,
    RaggedTensor as RaggedTensor,
    Tensor as Tensor,
    TensorArray as TensorArray,
    TensorShape as TensorShape,
    TensorSpec as TensorSpec,
    Variable as Variable,
    abs as abs,
    add_n as add_n,
    argmax as argmax,
    argmin as argmin,
    asin as asin,
    asinh as asinh,
    atan as atan,
    atan2 as atan2,
    atanh as atanh,
    bitcast as bitcast,
    broadcast_to as broadcast_to,
    cast as cast,
    clip_by_value as clip_by_value,
    concat as concat,
    cond as cond,
    constant as constant,
    convert_to_tensor as convert_to_tensor,
    cos as cos,
    cumsum as cumsum,
    custom_gradient as custom_gradient,
    einsum as einsum,
    ensure_shape as ensure_shape,
    executing_eagerly as executing_eagerly,
    exp as exp,
    fill as fill,
    float32 as float32,
    float64 as float64,
    floor as floor,
    foldl as foldl,
    gather as gather,
    gather_nd as gather_nd,
    identity as identity,
    init_scope as init_scope,
    int32 as int32,
    int64 as int64,
    is_tensor as is_tensor,
    map_fn as map_fn,
    matmul as matmul,
    maximum as maximum,
    minimum as minimum,
    newaxis as newaxis,
    one_hot as one_hot,
    ones as ones,
    ones_like as ones_like,
    pad as pad,
    pow as pow,
    range as range,
    reduce_all as reduce_all,
    reduce_any as reduce_any,
    reduce_logsumexp as reduce_logsumexp,
    reduce_max as reduce_max,
    reduce_mean as reduce_mean,
    reduce_min as reduce_min,
    reduce_prod as reduce_prod,
    reduce_sum as reduce_sum,
    repeat as repeat,
    reshape as reshape,
    reverse as reverse,
    roll as roll,
    scatter_nd as scatter_nd,
    searchsorted as searchsorted,
    shape as shape,
    sigmoid as sigmoid,
    sign as sign,
    sin as sin,
    sinh as sinh,
    size as size,
    slice as slice,
    sqrt as sqrt,
    square as square,
    squeeze as squeeze,
    stack as stack,
    stop_gradient as stop_gradient,
    string as string,
    tan as tan,
    tanh as tanh,
    tensor_scatter_nd_add as tensor_scatter_nd_add,
    tensor_scatter_nd_update as tensor_scatter_nd_update,
    tensordot as tensordot,
    tile as tile,
    transpose as transpose,
    uint32 as uint32,
    unstack as unstack,
    where as where,
    while_loop as while_loop,
    zeros as zeros,
    zeros_like as zeros_like,
)
from tensorflow.bitwise import bitwise_xor as bitwise_xor, right_shift as right_shift
from tensorflow.debugging import (
    assert_equal as assert_equal,
    assert_less_equal as assert_less_equal,
)
from tensorflow.linalg import (
    matrix_transpose as matrix_transpose,
    matvec as matvec,
    set_diag as set_diag,
)
from tensorflow.math import (
    betainc as betainc,
    cumprod as cumprod,
    divide_no_nan as divide_no_nan,
    erfc as erfc,
    expm1 as expm1,
    is_finite as is_finite,
    is_inf as is_inf,
    is_nan as is_nan,
    log as log,
    log1p as log1p,
    log_sigmoid as log_sigmoid,
    multiply_no_nan as multiply_no_nan,
    ndtri as ndtri,
    softplus as softplus,
    top_k as top_k,
    unsorted_segment_min as unsorted_segment_min,
    unsorted_segment_sum as unsorted_segment_sum,
    xlog1py as xlog1py,
    xlogy as xlogy,
)
from tensorflow.nn import relu as relu, softmax as softmax
from tensorflow.random import stateless_uniform as stateless_uniform

bool_ = _tf.bool
HAS_GRADIENTS = True
F = TypeVar("F", bound=Callable[..., Any])


def static_shape(x: Any) -> TensorShape:
    """The shape of what may be a tensor, as far as it is known while a graph is made."""
    return (x if isinstance(x, RaggedTensor) else convert_to_tensor(x)).shape


def rank(x: Any) -> Any:
    """The number of axes; `None` if a graph is made for several."""
    return x.shape.rank


def limits(dtype: Any) -> DType:
    """The attributes `min` and `max` are the least and the largest finite number of a dtype."""
    return _tf.as_dtype(dtype)


def is_integer(dtype: DType) -> bool:
    """Whether a dtype is one of whole numbers, with a sign or without."""
    return dtype.is_integer


def is_unsigned(dtype: DType) -> bool:
    """Whether a dtype is one of whole numbers without a sign."""
    return dtype.is_unsigned


def is_floating(dtype: DType) -> bool:
    """Whether a dtype is one of floating-point numbers."""
    return dtype.is_floating


def vjp(function: Callable[..., Any], *inputs: Tensor, has_aux: bool = False) -> tuple[Any, ...]:
    """Computes a function, and how a gradient of its value is pulled back to its inputs.

    Args:
        function: The function. With `has_aux`, it returns its value and anything else.
        *inputs: Its arguments.
        has_aux: Whether it returns anything else.

    Returns:
        The value; a function from the gradient of the value to a sequence of those of the inputs,
        with zeros for what does not change the value, to be called once; with `has_aux`, the other
        result.
    """
    with _tf.GradientTape() as tape:
        tape.watch(inputs)
        results = function(*inputs)
    value, *aux = results if has_aux else (results,)

    def pull_back(upstream: Any) -> Any:
        return tape.gradient(value, inputs, upstream, unconnected_gradients="zero")

    return value, pull_back, *aux


def softmax_cross_entropy(logits: Tensor, classes: Tensor) -> tuple[Tensor, Tensor]:
    """Computes the cross-entropy of one class of each row, and its gradient in the logits."""
    return _tf.raw_ops.SparseSoftmaxCrossEntropyWithLogits(features=logits, labels=classes)


# AutoGraph reads what a user's `tf.function` calls, and warns of syntax that it does not know. It
# need not read what has no control flow of tensors.
entry_point = _tf.autograph.experimental.do_not_convert


def graph(function: F) -> F:
    """Makes a graph of a function, which is traced again for few shapes."""
    return _tf.function(_counted_apart(function), reduce_retracing=True, autograph=False)


def _counted_apart(function: F) -> F:
    """TensorFlow counts the retracings of each partial separately.

    Otherwise all formulas would share one count, and a few of them would raise a warning.
    """
    return functools.partial(function)  # type: ignore[return-value]


def graph_of_lists(function: F) -> F:
    """Makes a graph of a function of lists, `[batch_size, list_size, ...]`, of any size.

    A loop of a user sees many sizes: the trace of the second would take longer than the first.
    """
    traces: dict[Hashable, Callable[..., Any]] = {}

    def run(*arguments: Any) -> Any:
        flat = _tf.nest.flatten(arguments)
        # what is no tensor is a part of the structure, such as a cut-off
        kinds = tuple(_of_any_size(x) if is_tensor(x) else x for x in flat)
        if kinds not in traces:
            traces[kinds] = _trace(function, _tf.nest.pack_sequence_as(arguments, kinds))
        return traces[kinds](*filter(is_tensor, flat))

    return run  # type: ignore[return-value]


def _trace(function: Callable[..., Any], arguments: Any) -> Callable[..., Any]:
    """Makes a graph of the tensors among the arguments, of which there are the types."""
    leaves = _tf.nest.flatten(arguments)

    def of_tensors(*tensors: Tensor) -> Any:
        rest = iter(tensors)
        whole = [next(rest) if isinstance(x, TensorSpec) else x for x in leaves]
        return function(*_tf.nest.pack_sequence_as(arguments, whole))

    types = [x for x in leaves if isinstance(x, TensorSpec)]
    return _tf.function(_counted_apart(of_tensors), types, autograph=False)


def _of_any_size(x: Tensor) -> TensorSpec:
    """The type of a tensor of lists, but for their number and size."""
    return TensorSpec([None, None, *x.shape[2:]][: x.shape.rank], x.dtype)


def differentiable(formula: F) -> F:
    """Makes two graphs: of a formula, and of its gradient in the scores, the second argument.

    TensorFlow's own gradient of the first has no gradient of its own if a custom gradient in it
    uses other tensors of the graph.
    """

    def pull_back(*arguments: Tensor) -> Tensor:
        first, scores, *others, upstream = arguments
        return vjp(lambda scores: formula(first, scores, *others), scores)[1](upstream)[0]

    value, gradient = graph_of_lists(formula), graph_of_lists(pull_back)

    @custom_gradient
    def of_fields(*fields: Tensor) -> tuple[Tensor, object]:
        # hidden from a tape outside, which would record the formula and differentiate its loops
        values = value(*map(stop_gradient, fields))
        others = [None] * (len(fields) - 2)
        return values, lambda upstream: (None, gradient(*fields, upstream), *others)

    return of_fields


def jit(function: F) -> F:
    """Compiles a function by XLA, where it is a part of a graph."""
    if _tf.executing_eagerly():
        return function
    return _tf.function(function, jit_compile=True, autograph=False)


def is_on_host(x: Tensor) -> bool:
    """Whether the numbers of a tensor are known now, and in the memory of the host."""
    return _tf.executing_eagerly() and "CPU" in x.device


def has_gpu() -> bool:
    """Whether this process has a GPU."""
    return len(_tf.config.list_logical_devices("GPU")) > 0


def get_keras_mask(x: Any) -> Tensor | None:
    """The mask that a layer of Keras attached to its output."""
    return getattr(x, "_keras_mask", None)


def set_keras_mask(x: Tensor, mask: Tensor) -> Tensor:
    """Attaches a mask to a tensor, and returns the tensor."""
    x._keras_mask = mask
    return x
