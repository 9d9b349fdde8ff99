"""Two-tower scorer: the inner product of user and item embeddings."""

from typing import Any

import keras
import tensorflow as tf

from tfrank_sel.serialization import Configurable, register


@register
class TwoTower(Configurable, keras.Model):
    """Embeddings of users and of items, whose inner product is the score.

    ```
    score(u, i) = p_u . q_i
    ```

    Args:
        num_users: Number of users.
        num_items: Number of items.
        num_factors: Length of the embeddings.
        name: Name of the model.
        **kwargs: As in `keras.Model`.

    Inputs: a dict of integers, `user` `[batch_size]` and `item` `[batch_size, list_size]`.

    Outputs: scores of shape `[batch_size, list_size]`, float32.

    Raises:
        ValueError: If a number is not positive.

    Example:
        >>> model = TwoTower(num_users=5, num_items=9, num_factors=4)
        >>> tuple(model({"user": tf.constant([1, 4]), "item": tf.zeros([2, 3], tf.int32)}).shape)
        (2, 3)
    """

    def __init__(
        self,
        num_users: int,
        num_items: int,
        num_factors: int,
        name: str = "two_tower",
        **kwargs: Any,
    ) -> None:
        super().__init__(name=name, **kwargs)
        if min(num_users, num_items, num_factors) < 1:
            raise ValueError(
                "`num_users`, `num_items` and `num_factors` must be positive. Received: "
                f"num_users={num_users}, num_items={num_items}, num_factors={num_factors}"
            )
        self.num_users = int(num_users)
        self.num_items = int(num_items)
        self.num_factors = int(num_factors)
        self.users = keras.layers.Embedding(self.num_users, self.num_factors, name="users")
        self.items = keras.layers.Embedding(self.num_items, self.num_factors, name="items")

    def build(self, input_shape: Any = None) -> None:
        """Creates the embeddings."""
        self.users.build((None,))
        self.items.build((None, None))
        self.built = True

    def call(self, inputs: dict[str, tf.Tensor]) -> tf.Tensor:
        """Returns the scores of the items."""
        users, items = self.users(inputs["user"]), self.items(inputs["item"])
        return tf.cast(tf.einsum("bk,blk->bl", users, items), tf.float32)

    def compute_output_shape(self, input_shape: Any) -> tuple[int | None, ...]:
        """Returns the shape of the scores, which is that of the items."""
        return tuple(input_shape["item"])
