"""Ranking losses."""

from tfrank_sel import surface
from tfrank_sel.losses import lambdas as lambdas, targets as targets
from tfrank_sel.losses.bases.listwise import ListwiseLoss as ListwiseLoss
from tfrank_sel.losses.classes import margin as margin
from tfrank_sel.losses.classes.margin import MarginSoftmaxLoss as MarginSoftmaxLoss
from tfrank_sel.losses.classes.multilabel import ZLPRLoss as ZLPRLoss
from tfrank_sel.losses.classes.nway import (
    NWayJointLoss as NWayJointLoss,
    NWayLoss as NWayLoss,
    NWayMeanLoss as NWayMeanLoss,
    NWayPairwiseLoss as NWayPairwiseLoss,
)
from tfrank_sel.losses.classes.nway_optimum import joint_optimum as joint_optimum
from tfrank_sel.losses.clicks.mixture import (
    ClickEMLoss as ClickEMLoss,
    MixtureEMLoss as MixtureEMLoss,
)
from tfrank_sel.losses.distillation.coupled import CoupledRankDistilLoss as CoupledRankDistilLoss
from tfrank_sel.losses.distillation.rank_errors import (
    ADRMSELoss as ADRMSELoss,
    SpearmanLoss as SpearmanLoss,
)
from tfrank_sel.losses.listwise.contrastive import (
    InBatchInfoNCELoss as InBatchInfoNCELoss,
    InfoNCELoss as InfoNCELoss,
    mutual_information_bound as mutual_information_bound,
)
from tfrank_sel.losses.listwise.direct import DirectAPLoss as DirectAPLoss
from tfrank_sel.losses.listwise.gumbel import GumbelLoss as GumbelLoss
from tfrank_sel.losses.listwise.listmle import ListMLELoss as ListMLELoss
from tfrank_sel.losses.listwise.neural_sort import (
    NeuralSortCrossEntropyLoss as NeuralSortCrossEntropyLoss,
    NeuralSortNDCGLoss as NeuralSortNDCGLoss,
)
from tfrank_sel.losses.listwise.relaxed import (
    ApproxAPLoss as ApproxAPLoss,
    ApproxDCGLoss as ApproxDCGLoss,
    ApproxMRRLoss as ApproxMRRLoss,
    ApproxNDCGLoss as ApproxNDCGLoss,
)
from tfrank_sel.losses.listwise.relaxed_cutoff import (
    ApproxPrecisionLoss as ApproxPrecisionLoss,
    ApproxRecallLoss as ApproxRecallLoss,
)
from tfrank_sel.losses.listwise.soft_rank import SoftRankLoss as SoftRankLoss
from tfrank_sel.losses.listwise.softmax import SoftmaxLoss as SoftmaxLoss
from tfrank_sel.losses.listwise.softmax_variants import (
    CalibratedSoftmaxLoss as CalibratedSoftmaxLoss,
    PolyOneSoftmaxLoss as PolyOneSoftmaxLoss,
    UniqueSoftmaxLoss as UniqueSoftmaxLoss,
)
from tfrank_sel.losses.normalization import (
    mean_over_slots as mean_over_slots,
    mean_over_terms as mean_over_terms,
    sum_over_terms as sum_over_terms,
)
from tfrank_sel.losses.pairwise import (
    LambdaLoss as LambdaLoss,
    PairwiseHingeLoss as PairwiseHingeLoss,
    PairwiseLogisticLoss as PairwiseLogisticLoss,
    PairwiseLoss as PairwiseLoss,
    PairwiseMSELoss as PairwiseMSELoss,
    PairwiseQuantileLoss as PairwiseQuantileLoss,
    PairwiseSoftZeroOneLoss as PairwiseSoftZeroOneLoss,
)
from tfrank_sel.losses.pairwise.circle import CircleLoss as CircleLoss
from tfrank_sel.losses.pairwise.margins import MarginMSELoss as MarginMSELoss
from tfrank_sel.losses.pairwise.yeti import YetiLogisticLoss as YetiLogisticLoss
from tfrank_sel.losses.pointwise.calibrated import JRCLoss as JRCLoss, RCRLoss as RCRLoss
from tfrank_sel.losses.pointwise.losses import (
    MeanSquaredLoss as MeanSquaredLoss,
    MultiClassLoss as MultiClassLoss,
    OrdinalLoss as OrdinalLoss,
    SigmoidCrossEntropyLoss as SigmoidCrossEntropyLoss,
)
from tfrank_sel.losses.rg.losses import RG2Loss as RG2Loss, RGCrossLoss as RGCrossLoss
from tfrank_sel.losses.selective.composite import (
    SelectiveSigmoidLoss as SelectiveSigmoidLoss,
    SelectiveSoftmaxLoss as SelectiveSoftmaxLoss,
)
from tfrank_sel.losses.selective.cross_entropy import (
    SelectiveSigmoidCrossEntropyLoss as SelectiveSigmoidCrossEntropyLoss,
    SelectiveSoftmaxCrossEntropyLoss as SelectiveSoftmaxCrossEntropyLoss,
)
from tfrank_sel.losses.selective.design import design as design, judge as judge
from tfrank_sel.losses.selective.matching import (
    ContrastiveMatchingLoss as ContrastiveMatchingLoss,
    DecomposedMatchingLoss as DecomposedMatchingLoss,
    FenchelYoungLoss as FenchelYoungLoss,
    MatchingLoss as MatchingLoss,
)
from tfrank_sel.losses.topk import (
    SmoothTopKLoss as SmoothTopKLoss,
    TopKCrossEntropyLoss as TopKCrossEntropyLoss,
    TopKHingeLoss as TopKHingeLoss,
    hit_at_k as hit_at_k,
    mean_over_relevant as mean_over_relevant,
    recall_structured as recall_structured,
)


def __dir__() -> list[str]:
    return surface.names(globals(), ["lambdas", "margin", "targets"])
