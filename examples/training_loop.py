"""Uses a loss and a metric in a training loop of your own."""

import keras
import numpy as np
import tensorflow as tf

from tfrank_sel import losses, metrics

random = np.random.default_rng(0)
features = random.normal(size=(640, 12, 6)).astype("float32")
clicks = (features[..., 0] + random.normal(size=(640, 12)) > 1.0).astype("float32")
batches = tf.data.Dataset.from_tensor_slices((features, clicks)).batch(64)

model = keras.Sequential(
    [keras.Input([None, 6]), keras.layers.Dense(1), keras.layers.Reshape([-1])]
)
optimizer, loss, mrr = keras.optimizers.Adam(0.02), losses.LambdaLoss(), metrics.MRR()


@tf.function(jit_compile=True)
def step(x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
    """Takes one step of training, and returns the loss."""
    with tf.GradientTape() as tape:
        value = loss(y, model(x, training=True))
    gradients = tape.gradient(value, model.trainable_variables)
    optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
    return value


for epoch in range(5):
    value = np.mean([step(x, y).numpy() for x, y in batches])
    mrr.reset_state()
    for x, y in batches:
        mrr.update_state(y, model(x))
    print(f"epoch {epoch + 1}: loss {value:.4f}, MRR {float(mrr.result()):.3f}")
