"""Ranking losses."""

from tfrank_sel import lazy
from tfrank_sel.losses import lambdas as lambdas, margin as margin, targets as targets
from tfrank_sel.losses.bases import (
    ListwiseLoss as ListwiseLoss,
    mean_over_slots as mean_over_slots,
    mean_over_terms as mean_over_terms,
    sum_over_terms as sum_over_terms,
)
from tfrank_sel.losses.catalogue import CatalogueLoss as CatalogueLoss
from tfrank_sel.losses.choice import design as design, judge as judge
from tfrank_sel.losses.classes import (
    NWayJointLoss as NWayJointLoss,
    NWayLoss as NWayLoss,
    NWayMeanLoss as NWayMeanLoss,
    NWayPairwiseLoss as NWayPairwiseLoss,
    ZLPRLoss as ZLPRLoss,
    joint_optimum as joint_optimum,
)
from tfrank_sel.losses.clicks import ClickEMLoss as ClickEMLoss, MixtureEMLoss as MixtureEMLoss
from tfrank_sel.losses.contrastive import (
    InBatchInfoNCELoss as InBatchInfoNCELoss,
    InfoNCELoss as InfoNCELoss,
    mutual_information_bound as mutual_information_bound,
)
from tfrank_sel.losses.direct import DirectAPLoss as DirectAPLoss
from tfrank_sel.losses.distillation import (
    ADRMSELoss as ADRMSELoss,
    CoupledRankDistilLoss as CoupledRankDistilLoss,
    SpearmanLoss as SpearmanLoss,
)
from tfrank_sel.losses.margin import MarginSoftmaxLoss as MarginSoftmaxLoss
from tfrank_sel.losses.pairwise import (
    CircleLoss as CircleLoss,
    LambdaLoss as LambdaLoss,
    MarginMSELoss as MarginMSELoss,
    PairwiseHingeLoss as PairwiseHingeLoss,
    PairwiseLogisticLoss as PairwiseLogisticLoss,
    PairwiseLoss as PairwiseLoss,
    PairwiseMSELoss as PairwiseMSELoss,
    PairwiseQuantileLoss as PairwiseQuantileLoss,
    PairwiseSoftZeroOneLoss as PairwiseSoftZeroOneLoss,
    YetiLogisticLoss as YetiLogisticLoss,
)
from tfrank_sel.losses.pointwise import (
    JRCLoss as JRCLoss,
    MeanSquaredLoss as MeanSquaredLoss,
    MultiClassLoss as MultiClassLoss,
    OrdinalLoss as OrdinalLoss,
    RCRLoss as RCRLoss,
    SigmoidCrossEntropyLoss as SigmoidCrossEntropyLoss,
)
from tfrank_sel.losses.relaxed import (
    ApproxAPLoss as ApproxAPLoss,
    ApproxDCGLoss as ApproxDCGLoss,
    ApproxMRRLoss as ApproxMRRLoss,
    ApproxNDCGLoss as ApproxNDCGLoss,
    ApproxPrecisionLoss as ApproxPrecisionLoss,
    ApproxRecallLoss as ApproxRecallLoss,
    NeuralSortCrossEntropyLoss as NeuralSortCrossEntropyLoss,
    NeuralSortNDCGLoss as NeuralSortNDCGLoss,
    SoftRankLoss as SoftRankLoss,
)
from tfrank_sel.losses.rg import RG2Loss as RG2Loss, RGCrossLoss as RGCrossLoss
from tfrank_sel.losses.sampled import GumbelLoss as GumbelLoss
from tfrank_sel.losses.selective import (
    ContrastiveMatchingLoss as ContrastiveMatchingLoss,
    DecomposedMatchingLoss as DecomposedMatchingLoss,
    FenchelYoungLoss as FenchelYoungLoss,
    MatchingLoss as MatchingLoss,
    SelectiveSigmoidCrossEntropyLoss as SelectiveSigmoidCrossEntropyLoss,
    SelectiveSigmoidLoss as SelectiveSigmoidLoss,
    SelectiveSoftmaxCrossEntropyLoss as SelectiveSoftmaxCrossEntropyLoss,
    SelectiveSoftmaxLoss as SelectiveSoftmaxLoss,
)
from tfrank_sel.losses.softmax import (
    CalibratedSoftmaxLoss as CalibratedSoftmaxLoss,
    ListMLELoss as ListMLELoss,
    PolyOneSoftmaxLoss as PolyOneSoftmaxLoss,
    SoftmaxLoss as SoftmaxLoss,
    UniqueSoftmaxLoss as UniqueSoftmaxLoss,
)
from tfrank_sel.losses.topk import (
    SmoothTopKLoss as SmoothTopKLoss,
    TopKCrossEntropyLoss as TopKCrossEntropyLoss,
    TopKHingeLoss as TopKHingeLoss,
    hit_at_k as hit_at_k,
    mean_over_relevant as mean_over_relevant,
    recall_structured as recall_structured,
)

__getattr__, __dir__, __all__ = lazy.exported(__name__)
