"""Chooses a loss by the scores at which errors matter, and compares it with the squared error."""

import keras
import numpy as np

from tfrank_sel import losses, metrics

choice = losses.design("high_score", at=1.0, width=2.0)  # errors matter most at high scores
print(type(choice.loss).__name__, choice.loss.scaling, choice.verdict.status)

random = np.random.default_rng(0)
features = random.normal(size=(1024, 10, 4)).astype("float32")
scores = np.tanh(features[..., 0]) + 0.5 * np.maximum(features[..., 1], 0.0)
scores += 0.1 * random.normal(size=scores.shape)

for loss in (choice.loss, losses.MeanSquaredLoss()):
    keras.utils.set_random_seed(0)
    model = keras.Sequential(
        [keras.Input([None, 4]), keras.layers.Dense(1), keras.layers.Reshape([-1])]
    )
    model.compile(
        keras.optimizers.Adam(0.02),
        loss=loss,
        metrics=[metrics.RegionAbsoluteError(1.0, 9.0, name="error_above_1")],
    )
    history = model.fit(features, scores, epochs=10, verbose=0).history
    print(type(loss).__name__, f"mean error above 1: {history['error_above_1'][-1]:.3f}")
