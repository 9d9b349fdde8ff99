"""Factorises who took what by RG^2, and recommends items."""

import numpy as np
from scipy import sparse

from tfrank_sel.models import als

random = np.random.default_rng(0)
taste = random.integers(0, 5, size=400)  # each user likes the items of one of five kinds
rows = np.repeat(np.arange(400), 20)
columns = taste[rows] * 40 + random.integers(0, 40, size=rows.size)
taken = sparse.csr_matrix((np.ones(rows.size), (rows, columns)), shape=(400, 200))

model = als.RGFactorizer(num_factors=16)
model.fit(taken)
items, scores = model.recommend([0, 1], 5)
print(items.tolist())
print("of the user's kind:", float(np.mean(items // 40 == taste[:2, None])))
