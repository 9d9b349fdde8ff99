"""Every public link, loss and metric beside its independent reference: one line each.

A loss of grades whose defaults are enough needs no line: see `of_references`. The contracts run
over these tables, and `test_no_public_formula_is_missing` holds them complete.
"""

import functools
import inspect
import re
from collections.abc import Callable
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tests.references import (
    links as ref_links,
    listwise as ref_listwise,
    losses as ref_losses,
    metrics as ref_metrics,
    pairwise as ref_pairwise,
    rg as ref_rg,
    selective as ref_selective,
    softmax_family as ref_softmax_family,
    topk as ref_topk,
)
from tfrank_sel import links, losses, metrics
from tfrank_sel.losses import lambdas, margin, targets
from tfrank_sel.ops import ranking
from tfrank_sel.serialization import Configurable

Array = NDArray[np.float64]
Labels = Callable[[np.random.Generator, tuple[int, ...]], Array]


def grades(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    return rng.integers(0, 5, shape).astype(np.float64)


def real_scores(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    return rng.normal(0.0, 1.5, shape).round(3)


def clicks(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    return rng.integers(0, 2, shape[:2]).astype(np.float64)


def fractions(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    return rng.uniform(0.0, 3.0, shape).round(3)


def binary(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    return rng.integers(0, 2, shape).astype(np.float64)


def probabilities(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    return rng.choice([0.0, 0.125, 0.5, 0.875, 1.0], shape)


def soft_rows(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    return rng.dirichlet(np.full(shape[-1], 0.5), shape[:-1])


def subtopics(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    return rng.integers(0, 2, (*shape, 3)).astype(np.float64)


def identities(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    return rng.integers(0, 4, shape).astype(np.float64)


WIDE = np.array([-3.0, -1.25, -0.5, 0.0, 0.375, 1.0, 2.5, 4.0])
UNIT = np.array([-0.96875, -0.5, -0.25, 0.0, 0.125, 0.625, 0.75, 0.984375])
POSITIVE = np.array([0.03125, 0.25, 0.375, 0.5, 0.75, 0.96875])


class LinkCase(NamedTuple):
    link: links.Link
    reference: ref_links.Formula
    points: Array = WIDE  # inside the domain, and off kinks of infinite slope


class Case(NamedTuple):
    make: Callable[..., Any]  # takes dtype and reduction
    reference: Callable[..., float]  # of labels, scores, weights of one list
    labels: Labels


def loss(make: Callable[..., Any], reference: Any, labels: Labels, *args: Any, **ref: Any) -> Case:
    return Case(functools.partial(make, *args), functools.partial(reference, **ref), labels)


def metric(make: Callable[..., Any], reference: Any, k: int | None) -> Case:
    return Case(functools.partial(make, k=k), functools.partial(reference, k=k), grades)


R, RL, RM, RS = ref_links, ref_losses, ref_metrics, ref_selective
RF, RI, RP, RT = ref_softmax_family, ref_listwise, ref_pairwise, ref_topk


def pairwise(make: Callable[..., Any], surrogate: RP.Surrogate, *args: Any, **ref: Any) -> Case:
    return loss(make, RP.pairwise, grades, *args, surrogate=surrogate, **ref)


# fmt: off
LINKS = [
    LinkCase(links.Identity(), R.IDENTITY),
    LinkCase(links.Identity(scale=2.0, shift=-1.0), R.scaled(R.IDENTITY, 2.0, -1.0)),
    LinkCase(links.Sigmoid(), R.SIGMOID),
    LinkCase(links.Sigmoid(scale=0.5, shift=1.5), R.scaled(R.SIGMOID, 0.5, 1.5)),
    LinkCase(links.Exp(), R.EXP),
    LinkCase(links.Exp(scale=0.5, shift=-1.0), R.scaled(R.EXP, 0.5, -1.0)),
    LinkCase(links.Sinh(), R.SINH),
    LinkCase(links.Sinh(scale=0.5, shift=1.0), R.scaled(R.SINH, 0.5, 1.0)),
    LinkCase(links.Scaled(links.Sinh(scale=0.5), 0.5), R.scaled(R.SINH, 0.5, 0.0, 0.5)),
    LinkCase(links.Constant(), R.CONSTANT),
    LinkCase(links.Tanh(), R.TANH),
    LinkCase(links.AntiExp(scale=0.5), R.scaled(R.ANTI_EXP, 0.5, 0.0)),
    LinkCase(links.SignedExpm1(), R.SIGNED_EXPM1),
    LinkCase(links.SignedLog1p(shift=0.25), R.scaled(R.SIGNED_LOG1P, 1.0, 0.25)),
    LinkCase(links.Arctan(scale=2.0), R.scaled(R.ARCTAN, 2.0, 0.0)),
    LinkCase(links.Arcsinh(scale=3.0), R.scaled(R.ARCSINH, 3.0, 0.0)),
    LinkCase(links.Power(exponent=3.0), R.power(3.0)),
    LinkCase(links.Power(exponent=0.5, shift=0.125), R.scaled(R.power(0.5), 1.0, 0.125)),
    LinkCase(links.SmeLU(half_width=1.5), R.smelu(1.5)),
    LinkCase(links.Huber(half_width=1.25), R.huber(1.25)),
    LinkCase(links.ReLU(shift=-0.5), R.scaled(R.RELU, 1.0, -0.5)),
    LinkCase(links.Step(), R.STEP),
    LinkCase(links.Sign(shift=1.0), R.scaled(R.SIGN, 1.0, 1.0)),
    LinkCase(links.Staircase(thresholds=[-2, 0.5], jumps=[1, 3]), R.staircase([-2, 0.5], [1, 3])),
    LinkCase(links.PiecewiseLinear(knots=[-1, 1, 2], values=[0, 1, 1], slope_below=2),
             R.hinges(0.0, -1.0, 2.0, [(-1, -1.5), (1, -0.5)])),
    LinkCase(links.Interpolated(low=-1.5, high=3.5, values=[-1, 0, 0.5, 0.5, 3, 4], scale=0.75),
             R.scaled(R.interpolated(np.linspace(-1.5, 3.5, 6), [-1, 0, 0.5, 0.5, 3, 4]), 0.75, 0)),
    LinkCase(links.Sin(), R.SIN, 1.5 * UNIT),
    LinkCase(links.Arcsin(), R.ARCSIN, UNIT),
    LinkCase(links.Arctanh(), R.ARCTANH, UNIT),
    LinkCase(links.Tan(), R.TAN, 1.5 * UNIT),
    LinkCase(links.Logit(scale=0.5, shift=-1.0), R.scaled(R.LOGIT, 0.5, -1.0), UNIT),
    LinkCase(links.NegLog1m(), R.NEG_LOG1M, np.append(UNIT, -30.0)),
    LinkCase(links.Log(), R.LOG, np.append(POSITIVE, 30.0)),
    LinkCase(links.Monomial(exponent=2.5), R.power(2.5), np.append(POSITIVE, 30.0)),
    LinkCase(links.Capped(links.Sinh(), -1.5, 2.0), R.capped(R.SINH, -1.5, 2.0)),
    LinkCase(links.Capped(links.Logit(), 0.125, 0.875), R.capped(R.LOGIT, 0.125, 0.875)),
    LinkCase(links.Inverse(links.Sigmoid(scale=2.0)), R.scaled(R.LOGIT, 1.0, 0.0, 0.5), POSITIVE),
    LinkCase(links.Sum([links.Sinh(), links.Tanh()]), R.added(R.SINH, R.TANH)),
    LinkCase(links.CompositeSigmoid(links.Exp(scale=0.5), 0.5, -1.0),
             R.composite_sigmoid(R.scaled(R.EXP, 0.5, 0.0), 0.5, -1.0)),
    LinkCase(links.Cosh(), R.COSH),
    LinkCase(links.AbsPower(exponent=2.0, constant=1.5), R.abs_power(2.0, 1.5)),
    LinkCase(links.Laplace(scale=0.5, shift=1.5), R.scaled(R.LAPLACE, 0.5, 1.5)),
]

LOSSES = [
    loss(losses.MatchingLoss, RS.matching, real_scores, LINKS[1].link, link=LINKS[1].reference),
    loss(losses.MatchingLoss, RS.matching, real_scores, LINKS[7].link, link=LINKS[7].reference),
    loss(losses.MatchingLoss, RS.matching, real_scores, LINKS[25].link, link=LINKS[25].reference),
    loss(losses.DecomposedMatchingLoss, RS.decomposed, real_scores, links.Tanh(), link=R.TANH),
    loss(losses.ContrastiveMatchingLoss, RS.contrastive, real_scores, LINKS[8].link,
         link=LINKS[8].reference),
    loss(losses.FenchelYoungLoss, RS.fenchel_young_of_sinh, real_scores, links.Sinh(scale=0.5),
         scale=0.5),
    loss(losses.SelectiveSigmoidLoss, RS.selective_sigmoid, real_scores, LINKS[5].link, 0.5, -1.0,
         scaling=LINKS[5].reference, gamma=0.5, offset=-1.0),
    *(loss(losses.SelectiveSoftmaxLoss, RS.selective_softmax, real_scores, link, 0.5,
           scaling=formula, gamma=0.5) for link, formula, _ in LINKS[:9:2]),
    loss(losses.SelectiveSigmoidCrossEntropyLoss, RS.sigmoid_cross_entropy, real_scores,
         links.Tanh(), 2.0, 0.5, scaling=R.TANH, gamma=2.0, offset=0.5),
    loss(losses.SelectiveSoftmaxCrossEntropyLoss, RS.softmax_cross_entropy, real_scores,
         links.Tanh(), 0.5, scaling=R.TANH, gamma=0.5),
    loss(losses.SoftmaxLoss, RL.softmax, grades, temperature=1.0),
    loss(losses.SoftmaxLoss, RL.softmax, grades, 0.5, temperature=0.5),
    loss(losses.SmoothTopKLoss, RT.mean_over_relevant, grades, 2, 0.5, 0.7,
         k=2, tau=0.5, margin=0.7),
    loss(losses.SmoothTopKLoss, RT.hit_at_k, grades, 2, 0.5, 0.7, losses.hit_at_k,
         k=2, tau=0.5, margin=0.7),
    loss(losses.SmoothTopKLoss, RT.recall_structured, grades, 2, 0.5, 0.7,
         losses.recall_structured, k=2, tau=0.5, margin=0.7),
    loss(losses.TopKCrossEntropyLoss, RT.cross_entropy, grades, [1, 3], [0.25, 0.75], 0.5,
         k=[1, 3], probabilities=[0.25, 0.75], temperature=0.5),
    loss(losses.TopKHingeLoss, RT.mean_over_relevant, grades, 2, k=2, tau=0.0, margin=1.0),
    loss(losses.TopKHingeLoss, RT.hit_at_k, grades, 2, 0.5, losses.hit_at_k,
         k=2, tau=0.0, margin=0.5),
    loss(losses.TopKHingeLoss, RT.recall_structured, grades, 2, 1.0, losses.recall_structured,
         k=2, tau=0.0, margin=1.0),
    loss(losses.RG2Loss, ref_rg.rg, grades, kappa=0.0),
    loss(losses.RG2Loss, ref_rg.rg, grades, 0.4, -0.5, kappa=0.0, alpha=0.4, target=-0.5),
    loss(losses.RGCrossLoss, ref_rg.rg, grades, kappa=1.0),
    loss(losses.RGCrossLoss, ref_rg.rg, grades, 0.4, 2.0, ranking.exponential_gain,
         kappa=1.0, alpha=0.4, target=2.0, gain=lambda y: 2.0**y - 1.0),
    loss(losses.SoftmaxLoss, RF.softmax_towards_gains, grades, 1.0,
         targets.Shares(ranking.exponential_gain)),
    loss(losses.SoftmaxLoss, RF.softmax_towards_softmax, grades, 1.0, targets.Softmax(2.0),
         target_temperature=2.0),
    loss(losses.InfoNCELoss, RF.infonce, binary, 0.5, temperature=0.5),
    loss(losses.MarginSoftmaxLoss, RF.margin_softmax, binary, margin.CosFace(0.25), 4.0,
         margin=RF.cosface, scale=4.0),
    loss(losses.MarginSoftmaxLoss, RF.margin_softmax, binary, margin.ArcFace(0.5), 4.0,
         margin=RF.arcface, scale=4.0),
    loss(losses.ZLPRLoss, RF.zlpr, probabilities, 0.5, threshold=0.5),
    loss(losses.ZLPRLoss, RF.zlpr, binary, threshold=0.0),
    loss(losses.SoftRankLoss, RF.soft_rank, grades, sigma=1.0, k=None),
    loss(losses.SoftRankLoss, RF.soft_rank, grades, 0.5, 2, sigma=0.5, k=2),
    loss(losses.DirectAPLoss, RF.direct_ap, binary, epsilon=1.0),
    loss(losses.DirectAPLoss, RF.direct_ap, binary, -2.0, epsilon=-2.0),
    loss(losses.SoftmaxLoss, RP.lambda_softmax, grades, 0.5, targets.Shares(),
         lambdas.NDCGLambdaWeight(k=2), temperature=0.5, normalized=True, k=2,
         gain=RP.exponential, discount=RP.log2_inverse),
    loss(losses.SigmoidCrossEntropyLoss, RP.sigmoid_cross_entropy, probabilities),
    loss(losses.RCRLoss, RP.rcr, probabilities, 0.25, alpha=0.25),
    loss(losses.MeanSquaredLoss, RP.mean_squared, real_scores, losses.sum_over_terms,
         is_sum=True),
    loss(losses.MeanSquaredLoss, RP.mean_squared, real_scores, losses.mean_over_terms,
         -np.inf, -0.5, 1.0, lower=-0.5, upper=1.0),
    pairwise(losses.PairwiseLogisticLoss, RP.logistic),
    pairwise(losses.PairwiseLogisticLoss, RP.logistic, lambdas.LabelDiffLambdaWeight(), 0.5,
             weigh=RP.label_difference, temperature=0.5),
    pairwise(losses.PairwiseLogisticLoss, RP.logistic, lambdas.DCGLambdaWeight(),
             weigh=RP.swap(RP.linear, RP.inverse, False), is_sum=True),
    pairwise(losses.PairwiseLogisticLoss, RP.logistic,
             lambdas.NDCGLambdaWeight(3, smooth_fraction=0.25),
             weigh=RP.swap(RP.exponential, RP.log2_inverse, True, 0.25, 3), is_sum=True),
    pairwise(losses.PairwiseLogisticLoss, RP.logistic, lambdas.YetiDCGLambdaWeight(),
             weigh=RP.lambda_loss(None, False, True), is_sum=True),
    pairwise(losses.LambdaLoss, RP.logistic, weigh=RP.lambda_loss(), is_sum=True),
    pairwise(losses.LambdaLoss, RP.logistic, lambdas.NDCGLambdaWeightV2(2),
             weigh=RP.lambda_loss(2), is_sum=True),
    pairwise(losses.PairwiseHingeLoss, RP.hinge),
    pairwise(losses.PairwiseHingeLoss, RP.hinge, lambdas.PrecisionLambdaWeight(2),
             weigh=RP.precision(2)),
    pairwise(losses.PairwiseSoftZeroOneLoss, RP.soft_zero_one, None, 2.0, losses.sum_over_terms,
             temperature=2.0, is_sum=True),
    pairwise(losses.PairwiseMSELoss, RP.squared, None, 2.0, ordered=False, temperature=2.0),
    pairwise(losses.PairwiseMSELoss, RP.squared, lambdas.NDCGLambdaWeight(), ordered=False,
             weigh=RP.swap(RP.exponential, RP.log2_inverse, True), is_sum=True),
    pairwise(losses.PairwiseQuantileLoss, RP.quantile(0.75, 1), 0.75),
    pairwise(losses.PairwiseQuantileLoss, RP.quantile(0.25, 2), 0.25, True),
    loss(losses.ListMLELoss, RI.list_mle, grades, position_weight=None, temperature=1.0),
    loss(losses.ListMLELoss, RI.list_mle, grades, ranking.log2_discount, 0.5,
         position_weight=lambda r: 1.0 / np.log2(1.0 + r), temperature=0.5),
    loss(losses.UniqueSoftmaxLoss, RI.unique_softmax, grades, 0.5, temperature=0.5),
    loss(losses.CalibratedSoftmaxLoss, RI.calibrated_softmax, grades,
         virtual_label=0.0, temperature=1.0),
    loss(losses.CalibratedSoftmaxLoss, RI.calibrated_softmax, grades, 0.5, 2.0,
         virtual_label=0.5, temperature=2.0),
    loss(losses.PolyOneSoftmaxLoss, RI.poly_one_softmax, grades, 2.0, 0.5,
         epsilon=2.0, temperature=0.5),
    loss(losses.ApproxNDCGLoss, RI.approx_ndcg, grades, temperature=0.1),
    loss(losses.ApproxDCGLoss, RI.approx_dcg, grades, 1.0, temperature=1.0),
    loss(losses.ApproxMRRLoss, RI.approx_mrr, grades, 0.5, temperature=0.5),
    loss(losses.ApproxAPLoss, RI.approx_ap, grades, 0.5, temperature=0.5),
    loss(functools.partial(losses.ApproxNDCGLoss, link=links.Laplace()), RI.approx_ndcg, grades,
         0.5, temperature=0.5, h=R.LAPLACE.h),
    loss(functools.partial(losses.ApproxAPLoss, link=links.Laplace()), RI.approx_ap, grades, 0.5,
         temperature=0.5, h=R.LAPLACE.h),
    loss(losses.ApproxPrecisionLoss, RI.approx_precision, grades, 2, 0.5, k=2, temperature=0.5),
    loss(losses.ApproxRecallLoss, RI.approx_recall, grades, 2, 0.5, k=2, temperature=0.5),
    loss(losses.NeuralSortNDCGLoss, RI.neural_sort_ndcg, grades, 2.0, temperature=2.0),
    loss(losses.SpearmanLoss, RI.spearman, real_scores, temperature=1.0),
    loss(losses.SpearmanLoss, RI.spearman, grades, 0.5, links.Laplace(), temperature=0.5,
         h=R.LAPLACE.h),
    loss(losses.ADRMSELoss, RI.adr_mse, real_scores, temperature=1.0),
    loss(losses.ADRMSELoss, RI.adr_mse, grades, 0.5, temperature=0.5),
    loss(losses.MarginMSELoss, RP.pairwise, real_scores, 2.0, surrogate=RP.squared, ordered=False,
         temperature=2.0),
]

# whose gradients hold a part constant, which the reference takes as `held`
HOLDING = [
    loss(losses.CircleLoss, RI.circle, grades, gamma=64.0, margin=0.25),
    loss(losses.CircleLoss, RI.circle, grades, 4.0, 0.5, gamma=4.0, margin=0.5),
]

# whose items have several scores, and whose gradients hold a part constant
HOLDING_VECTORS = [
    loss(losses.ClickEMLoss, RI.click_em, clicks, 0.5, 2.0, exam_weight=0.5, relevance_weight=2.0),
    loss(losses.MixtureEMLoss, RI.mixture_em, clicks, 0.5, alpha=0.5),
]

# whose items have several scores
SCORE_VECTORS = [
    *HOLDING_VECTORS,
    loss(losses.OrdinalLoss, RP.ordinal, grades, 3),
    loss(losses.OrdinalLoss, RP.ordinal, fractions, 2, True, use_fraction_label=True),
    loss(losses.JRCLoss, RP.jrc, probabilities, 0.25, alpha=0.25),
    loss(losses.MultiClassLoss, RP.multi_class, identities, 4, 0.125, losses.sum_over_terms,
         label_smoothing=0.125, is_sum=True),
]

# of Gumbel noise, which the reference takes as `noise`
SAMPLED = [
    loss(losses.GumbelLoss, RI.gumbel, grades, losses.ApproxNDCGLoss(0.5), 3, 2.0, 7,
         inner=functools.partial(RI.approx_ndcg, temperature=0.5), temperature=2.0),
    loss(losses.GumbelLoss, RI.gumbel, grades, losses.ListMLELoss(), 2, 1.0, 7,
         inner=functools.partial(RI.list_mle, position_weight=None, temperature=1.0),
         temperature=1.0),
    loss(losses.YetiLogisticLoss, RP.yeti, grades, lambdas.YetiDCGLambdaWeight(3), 0.5, 2, 2.0, 7,
         surrogate=RP.logistic, weigh=RP.lambda_loss(3, False, True), temperature=0.5,
         gumbel_temperature=2.0),
    loss(losses.CoupledRankDistilLoss, RI.coupled_rank_distil, grades, 3, 2, 0.5, 7,
         k=2, temperature=0.5),
]

# of rows of classes, with a reference of labels, scores, weights of rows
N_WAY = [
    loss(losses.NWayJointLoss, RF.n_way_joint, soft_rows),
    loss(losses.NWayMeanLoss, RF.n_way_mean, soft_rows),
    loss(losses.NWayPairwiseLoss, RF.n_way_pairwise, soft_rows, scale=1.0, class_weights=[1.0] * 3),
    loss(losses.NWayPairwiseLoss, RF.n_way_pairwise, soft_rows, 2.0, [0.5, 2.0, 1.0],
         scale=2.0, class_weights=[0.5, 2.0, 1.0]),
]

LOG_Q = [-0.5, -3.0, -1.0, -2.0, -1.5]  # of each identity
# of a batch of pairs, with a reference of identities, similarities, weights of pairs
IN_BATCH = [
    loss(losses.InBatchInfoNCELoss, RF.in_batch_infonce, identities, 0.5,
         temperature=0.5, symmetric=False, log_q=None),
    loss(losses.InBatchInfoNCELoss, RF.in_batch_infonce, identities, 2.0, True,
         temperature=2.0, symmetric=True, log_q=None),
    loss(losses.InBatchInfoNCELoss, RF.in_batch_infonce, identities, 0.5, True, LOG_Q,
         temperature=0.5, symmetric=True, log_q=LOG_Q),
    loss(losses.InBatchInfoNCELoss, RF.in_batch_infonce, identities, 0.5, False, LOG_Q,
         temperature=0.5, symmetric=False, log_q=LOG_Q),
]

METRICS = [
    metric(metrics.NDCG, RM.ndcg, None),
    metric(metrics.NDCG, RM.ndcg, 3),
    metric(metrics.DCG, RM.discounted_gain, None),
    metric(metrics.DCG, RM.discounted_gain, 3),
    metric(metrics.Precision, RM.precision, None),
    metric(metrics.Precision, RM.precision, 3),
    metric(metrics.Recall, RM.recall, None),
    metric(metrics.Recall, RM.recall, 3),
    metric(metrics.MAP, RM.average_precision, None),
    metric(metrics.MAP, RM.average_precision, 3),
    metric(metrics.MRR, RM.reciprocal_rank, None),
    metric(metrics.MRR, RM.reciprocal_rank, 2),
    metric(metrics.Hits, RM.hits, None),
    metric(metrics.Hits, RM.hits, 2),
    metric(metrics.PWA, RM.position_weighted_average, 2),
    metric(metrics.ERR, RM.expected_reciprocal_rank, None),
    metric(metrics.ERR, RM.expected_reciprocal_rank, 3),
    loss(metrics.RBP, RM.rank_biased_precision, grades, 0.7, persistence=0.7),
    loss(metrics.RPrecision, RM.r_precision, grades),
    loss(metrics.ARP, RM.average_relevance_position, grades),
    loss(metrics.OPA, RM.ordered_pair_accuracy, grades),
    loss(metrics.AUC, RM.area_under_curve, binary),
    loss(metrics.BPref, RM.binary_preference, binary, k=None),
    loss(metrics.BPref, RM.binary_preference, binary, 3, True, k=3, of_relevant=True),
    loss(metrics.KendallTau, RM.kendall_tau, grades),
    loss(metrics.SpearmanRho, RM.spearman_rho, grades),
    *(Case(functools.partial(metrics.LogitNorm, centered),
           functools.partial(ref_rg.logit_norm, centered=centered), grades)
      for centered in (False, True)),
    loss(metrics.RegionDivergence, RM.region_divergence, real_scores, LINKS[7].link, -9.0, 1.5,
         link=LINKS[7].reference, lower=-9.0, upper=1.5),
    loss(metrics.RegionAbsoluteError, RM.region_absolute_error, real_scores, -9.0, 1.5,
         lower=-9.0, upper=1.5),
    loss(metrics.ExcessError, RM.excess_error, real_scores, 0.5, above=0.5),
]

# of lists of items that cover subtopics
DIVERSITY = [
    metric(metrics.PrecisionIA, RM.precision_ia, None)._replace(labels=subtopics),
    metric(metrics.PrecisionIA, RM.precision_ia, 2)._replace(labels=subtopics),
    metric(metrics.AlphaDCG, RM.alpha_dcg, None)._replace(labels=subtopics),
    loss(metrics.AlphaDCG, RM.alpha_dcg, subtopics, 3, 0.25, k=3, alpha=0.25),
    metric(metrics.AlphaNDCG, RM.alpha_ndcg, None)._replace(labels=subtopics),
    loss(metrics.AlphaNDCG, RM.alpha_ndcg, subtopics, 2, 0.25, k=2, alpha=0.25),
    metric(metrics.SubtopicRecall, RM.subtopic_recall, 2)._replace(labels=subtopics),
]

# of the items of all lists together, with a reference of labels, scores, weights of items
CALIBRATION = [
    loss(metrics.BrierScore, RM.brier_score, probabilities),
    loss(metrics.BrierScore, RM.brier_score, probabilities, False, from_logits=False),
    loss(metrics.PCOC, RM.pcoc, probabilities),
    loss(metrics.PCOC, RM.pcoc, fractions, False, from_logits=False),
    loss(metrics.ECE, RM.expected_calibration_error, probabilities),
    loss(metrics.ECE, RM.expected_calibration_error, fractions, [-0.5, 0.75, 2.0], False,
         edges=(-0.5, 0.75, 2.0), from_logits=False),
]
EVERY_METRIC = METRICS + DIVERSITY + CALIBRATION
# fmt: on
_WORDS = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")


def of_references(cases: list[Case]) -> list[Case]:
    """The cases of the losses that have none yet: their defaults, on grades.

    The reference of `NeuralSortNDCGLoss` is the function `neural_sort_ndcg` of one of the modules
    of references. It gets, beside labels, scores and weights, the attributes that it names.
    """
    modules = (RL, RF, RI, RP, RT, RS, ref_rg)
    references = {name: f for module in modules for name, f in vars(module).items()}
    cased, found = {case.make.func for case in cases}, []
    for name, formula in inspect.getmembers(losses, inspect.isclass):
        reference = references.get(_WORDS.sub("_", name.removesuffix("Loss")).lower())
        is_open = formula not in cased and not inspect.isabstract(formula)
        if is_open and name.endswith("Loss") and reference is not None:
            _, _, _, *more = inspect.signature(reference).parameters
            arguments = {x: getattr(formula(), x) for x in more}
            found.append(loss(formula, reference, grades, **arguments))
    return found


LOSSES += of_references(LOSSES + HOLDING + SAMPLED + SCORE_VECTORS + N_WAY + IN_BATCH)
EVERY_LOSS = LOSSES + HOLDING + SAMPLED + SCORE_VECTORS + N_WAY + IN_BATCH


def missing_formulas(module: ModuleType) -> set[str]:
    """The public losses or metrics that have no case."""
    public = {
        name
        for name, x in inspect.getmembers(module, inspect.isclass)
        if issubclass(x, Configurable) and not inspect.isabstract(x)
    }
    assert len(public) > 20
    made = {case.make.func.__name__ for case in EVERY_LOSS + EVERY_METRIC}
    # that of other losses has tests of its own: tests/losses/test_catalogue.py, tests/backends
    return public - made - {"CatalogueLoss"}


def name_of(case: Any) -> str:
    """Names a test by its formula and parameters, e.g. `SoftmaxLoss-0.5`."""
    if isinstance(case, LinkCase):
        return repr(case.link)
    arguments = (*case.make.args, *case.make.keywords.values())
    words = [case.make.func.__name__, *map(_shortly, arguments)]
    return re.sub(r"<function (\w+) at \w+>", r"\1", "-".join(words))  # the same in any process


def _shortly(argument: Any) -> str:
    if isinstance(argument, losses.ListwiseLoss):
        return type(argument).__name__
    return argument.__name__ if inspect.isfunction(argument) else str(argument)


def one_per_class(cases: list[Case]) -> list[Case]:
    """The first case of each class, for what its parameters cannot change."""
    return list({case.make.func: case for case in reversed(cases)}.values())
