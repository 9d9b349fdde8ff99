"""Misspelt arguments, each of which mypy and pyright must find: `make lint` reads this file.

An error that is not found makes its comment needless, which is an error itself.
"""

from tfrank_sel import callbacks, estimator, links, losses, metrics, models
from tfrank_sel.models import als

losses.SoftmaxLoss(temprature=2.0)  # type: ignore[call-arg] # pyright: ignore[reportCallIssue]
losses.RGCrossLoss(alfa=2.0)  # type: ignore[call-arg] # pyright: ignore[reportCallIssue]
losses.SmoothTopKLoss(5, taw=1.0)  # type: ignore[call-arg] # pyright: ignore[reportCallIssue]
losses.LambdaLoss(kk=3)  # type: ignore[call-arg] # pyright: ignore[reportCallIssue]
losses.MatchingLoss(lnk=3)  # type: ignore[call-arg] # pyright: ignore[reportCallIssue]
losses.PairwiseMSELoss(temprature=2.0)  # type: ignore[call-arg] # pyright: ignore[reportCallIssue]
metrics.NDCG(topn=3)  # type: ignore[call-arg] # pyright: ignore[reportCallIssue]
metrics.MRR(topn=3)  # type: ignore[call-arg] # pyright: ignore[reportCallIssue]
metrics.ECE(bin=3)  # type: ignore[call-arg] # pyright: ignore[reportCallIssue]
links.Sigmoid(scle=2.0)  # type: ignore[call-arg] # pyright: ignore[reportCallIssue]
models.Perceptron(hiden_units=[8])  # type: ignore[call-arg] # pyright: ignore[reportCallIssue]
models.SequenceEncoder(9, 8, hed=1)  # type: ignore[call-arg] # pyright: ignore[reportCallIssue]
models.TwoTower(1, 1, num_factor=8)  # type: ignore[call-arg] # pyright: ignore[reportCallIssue]
als.RGFactorizer(factors=8)  # type: ignore[call-arg] # pyright: ignore[reportCallIssue]
callbacks.AnnealTau(los=3)  # type: ignore[call-arg] # pyright: ignore[reportCallIssue]
estimator.Ranker(los=3)  # type: ignore[call-arg] # pyright: ignore[reportCallIssue]

# what is right
losses.SoftmaxLoss(2.0, name="a", reduction=None, dtype="float64")
losses.SmoothTopKLoss(5, tau=0.5, name="a", reduction="sum")
metrics.NDCG(10, name="a", dtype="float32").update_state([[1.0]], [[2.0]], [1.0])
metrics.RegionDivergence(links.Sigmoid(scale=2.0), 0.0, averaging=metrics.averaging.ALL_LISTS)
models.Perceptron([8], 0.1, name="a", trainable=False)
estimator.Ranker(losses.SoftmaxLoss(), members=1)
estimator.Ranker([losses.SoftmaxLoss(), losses.RGCrossLoss()])
