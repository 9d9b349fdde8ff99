"""Trains a ranker on lists, evaluates it, and loads it again."""

import pathlib
import tempfile

import keras
import numpy as np

from tfrank_sel import losses, metrics, models

random = np.random.default_rng(0)
features = random.normal(size=(512, 20, 8)).astype("float32")  # 512 queries of 20 items
utility = features[..., 0] - features[..., 1] + random.normal(size=(512, 20))
grades = np.clip(np.round(utility), 0, 4)
grades[random.random(grades.shape) < 0.1] = np.nan  # padding: lists need not be of one length
train, test = slice(0, 400), slice(400, None)

model = models.ListScorer(*models.moments(features[train]))
model.compile(
    keras.optimizers.Adam(0.01),
    loss=losses.RGCrossLoss(),
    metrics=[metrics.NDCG(k=10), metrics.MRR()],
    jit_compile=True,
)
model.fit(features[train], grades[train], epochs=5, verbose=2)
found = model.evaluate(features[test], grades[test], return_dict=True, verbose=0)
print({name: round(value, 3) for name, value in found.items()})

with tempfile.TemporaryDirectory() as folder:
    path = pathlib.Path(folder, "ranker.keras")
    model.save(path)
    loaded = keras.saving.load_model(path)
best = np.argsort(-loaded.predict(features[test][:1], verbose=0)[0])[:3]
print("first items of the first query:", best.tolist())
