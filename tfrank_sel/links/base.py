"""The link: an increasing function that says where a loss is sensitive."""

import abc
import dataclasses
import math

import tensorflow as tf

from tfrank_sel.serialization import Configurable, register


@dataclasses.dataclass(frozen=True, kw_only=True)
class Link(Configurable, abc.ABC):
    """An increasing function `h`, with its potential `H`, slope `h'` and inverse.

    A link is a value: two links with the same parameters are equal, hash alike, and are saved by
    their parameters. Every method is elementwise, and keeps the shape and dtype of its arguments.
    """

    @property
    def domain(self) -> tuple[float, float]:
        """The open interval on which `h` is defined and increasing."""
        return (-math.inf, math.inf)

    @abc.abstractmethod
    def __call__(self, s: tf.Tensor) -> tf.Tensor:
        """Computes `h(s)`."""

    @abc.abstractmethod
    def potential(self, s: tf.Tensor) -> tf.Tensor:
        """Computes `H(s)`, with `H' = h`."""

    @abc.abstractmethod
    def slope(self, s: tf.Tensor) -> tf.Tensor:
        """Computes `h'(s)`, the sensitivity at `s`."""

    @abc.abstractmethod
    def inverse(self, y: tf.Tensor) -> tf.Tensor:
        """Computes the `s` at which `h(s) = y`."""

    @abc.abstractmethod
    def stable_divergence(self, z: tf.Tensor, s: tf.Tensor, d: tf.Tensor) -> tf.Tensor:
        """Computes `H(z) - H(s) - (z - s) * h(s)` from `z`, `s` and `d = z - s`.

        `d` comes as an argument since it was known before `z` and `s` were rounded. A subclass
        writes this; a caller uses `divergence`.
        """

    @abc.abstractmethod
    def stable_difference(self, z: tf.Tensor, s: tf.Tensor, d: tf.Tensor) -> tf.Tensor:
        """Computes `h(z) - h(s)` from `z`, `s` and `d = z - s`; a caller uses `difference`."""

    def divergence(self, z: tf.Tensor, s: tf.Tensor) -> tf.Tensor:
        """Computes `H(z) - H(s) - (z - s) * h(s)`, the area between the link and its value at `s`.

        It is at least 0, is 0 where `z = s`, and keeps its digits near there. Its gradient is
        `h(z) - h(s)` in `z` and `-(z - s) * h'(s)` in `s`, in closed form, to any order.

        Args:
            z: Predicted scores.
            s: Observed scores, of the shape of `z`.

        Returns:
            The divergence, of the shape of `z`.
        """

        @tf.custom_gradient
        def f(z: tf.Tensor, s: tf.Tensor) -> tuple[tf.Tensor, object]:
            def gradient(upstream: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
                return upstream * self.difference(z, s), -upstream * (z - s) * self.slope(s)

            return self.stable_divergence(z, s, z - s), gradient

        return f(z, s)

    def difference(self, z: tf.Tensor, s: tf.Tensor) -> tf.Tensor:
        """Computes `h(z) - h(s)`, keeping its digits where `z` is near `s`.

        Args:
            z: Predicted scores.
            s: Observed scores, of the shape of `z`.

        Returns:
            The difference, of the shape of `z`.
        """

        @tf.custom_gradient
        def f(z: tf.Tensor, s: tf.Tensor) -> tuple[tf.Tensor, object]:
            def gradient(upstream: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
                return upstream * self.slope(z), -upstream * self.slope(s)

            return self.stable_difference(z, s, z - s), gradient

        return f(z, s)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ElementaryLink(Link):
    """A link with a closed form, `h(s) = phi(scale * (s - shift))`.

    A subclass writes the functions of `x = scale * (s - shift)`, nothing else.

    Args:
        scale: Stretches the link; positive.
        shift: Moves the link to the right.

    Raises:
        ValueError: If `scale` is not positive and finite, or `shift` is not finite.
    """

    scale: float = 1.0
    shift: float = 0.0

    def __post_init__(self) -> None:
        if not 0.0 < self.scale < math.inf:
            raise ValueError(f"`scale` must be positive and finite. Received: scale={self.scale}")
        if not math.isfinite(self.shift):
            raise ValueError(f"`shift` must be finite. Received: shift={self.shift}")

    @abc.abstractmethod
    def phi(self, x: tf.Tensor) -> tf.Tensor:
        """Computes the unscaled link."""

    @abc.abstractmethod
    def phi_potential(self, x: tf.Tensor) -> tf.Tensor:
        """Computes the primitive of `phi`."""

    @abc.abstractmethod
    def phi_slope(self, x: tf.Tensor) -> tf.Tensor:
        """Computes the derivative of `phi`."""

    @abc.abstractmethod
    def phi_inverse(self, y: tf.Tensor) -> tf.Tensor:
        """Computes the `x` at which `phi(x) = y`."""

    @abc.abstractmethod
    def phi_divergence(self, z: tf.Tensor, x: tf.Tensor, d: tf.Tensor) -> tf.Tensor:
        """Computes the divergence of `phi` from `z`, `x` and `d = z - x`."""

    @abc.abstractmethod
    def phi_difference(self, z: tf.Tensor, x: tf.Tensor, d: tf.Tensor) -> tf.Tensor:
        """Computes `phi(z) - phi(x)` from `z`, `x` and `d = z - x`."""

    def __call__(self, s: tf.Tensor) -> tf.Tensor:
        return self.phi(self._x(s))

    def potential(self, s: tf.Tensor) -> tf.Tensor:
        return self.phi_potential(self._x(s)) / self.scale

    def slope(self, s: tf.Tensor) -> tf.Tensor:
        return self.scale * self.phi_slope(self._x(s))

    def inverse(self, y: tf.Tensor) -> tf.Tensor:
        return self.shift + self.phi_inverse(y) / self.scale

    def stable_divergence(self, z: tf.Tensor, s: tf.Tensor, d: tf.Tensor) -> tf.Tensor:
        return self.phi_divergence(self._x(z), self._x(s), self.scale * d) / self.scale

    def stable_difference(self, z: tf.Tensor, s: tf.Tensor, d: tf.Tensor) -> tf.Tensor:
        return self.phi_difference(self._x(z), self._x(s), self.scale * d)

    def _x(self, s: tf.Tensor) -> tf.Tensor:
        return self.scale * (s - self.shift)


@register
@dataclasses.dataclass(frozen=True)
class Scaled(Link):
    """`h(s) = factor * link(s)`: the same sensitivities, `factor` times as large.

    The scaling `Q(z) = Phi(scale * (z - shift))` of a composite Softmax, as the paper writes it,
    is `Scaled(link, link.scale)`.

    Args:
        link: The link to multiply.
        factor: What to multiply by; positive.

    Raises:
        ValueError: If `factor` is not positive and finite.
    """

    link: Link
    factor: float

    def __post_init__(self) -> None:
        if not 0.0 < self.factor < math.inf:
            raise ValueError(
                f"`factor` must be positive and finite. Received: factor={self.factor}"
            )

    @property
    def domain(self) -> tuple[float, float]:
        return self.link.domain

    def __call__(self, s: tf.Tensor) -> tf.Tensor:
        return self.factor * self.link(s)

    def potential(self, s: tf.Tensor) -> tf.Tensor:
        return self.factor * self.link.potential(s)

    def slope(self, s: tf.Tensor) -> tf.Tensor:
        return self.factor * self.link.slope(s)

    def inverse(self, y: tf.Tensor) -> tf.Tensor:
        return self.link.inverse(y / self.factor)

    def stable_divergence(self, z: tf.Tensor, s: tf.Tensor, d: tf.Tensor) -> tf.Tensor:
        return self.factor * self.link.stable_divergence(z, s, d)

    def stable_difference(self, z: tf.Tensor, s: tf.Tensor, d: tf.Tensor) -> tf.Tensor:
        return self.factor * self.link.stable_difference(z, s, d)
