"""Names that packages export and names that Keras loads, written by `make exports`.

The imports of a package, as in `from module import name as name`, are what it exports, and
`@register` marks what Keras loads.
"""

EXPORTS = {
    "tfrank_sel": {
        "tfrank_sel": (
            "bounds callbacks clicks data distribution estimator export features links losses "
            "metrics models objectives pipelines plots presets recommend serving"
        ),
        "tfrank_sel.estimator": "Ranker",
        "tfrank_sel.version": "__version__",
    },
    "tfrank_sel.clicks": {
        "tfrank_sel.clicks.comparison": "Fit compare",
        "tfrank_sel.clicks.correction": "CORRECTIONS effective labels",
        "tfrank_sel.clicks.evaluation": "ESTIMATORS Value reordered value",
        "tfrank_sel.clicks.interleaving": (
            "credited drafted mean_test optimised sign_test team_draft"
        ),
        "tfrank_sel.clicks.log": "Log",
        "tfrank_sel.clicks.models": "MODELS",
        "tfrank_sel.clicks.pairs": "groups",
        "tfrank_sel.clicks.propensities": "METHODS Propensities estimate",
    },
    "tfrank_sel.data": {
        "tfrank_sel.data": (
            "arrays batching elwc formats frames letor packed parsing requests schema sequences "
            "stores synthetic table trec typed writing"
        ),
        "tfrank_sel.data.batching": "batches bucket_edges head list_sizes split_segments top",
        "tfrank_sel.data.cache": "Cache",
        "tfrank_sel.data.formats": "read",
        "tfrank_sel.data.lists": "ItemList Lists",
        "tfrank_sel.data.rejections": "InputError Rejected",
        "tfrank_sel.data.schema": "Schema",
        "tfrank_sel.data.sequences": "Sequences",
        "tfrank_sel.data.spec": "FeatureSpec ListFeatures",
    },
    "tfrank_sel.distribution": {
        "tfrank_sel.distribution.collective": "CollectiveGroup MeanLogs",
        "tfrank_sel.distribution.groups": "Group SingleProcess",
    },
    "tfrank_sel.estimator": {
        "tfrank_sel.estimator.ranker": "Ranker",
    },
    "tfrank_sel.export": {
        "tfrank_sel.export.recommenders": "factorization next_items",
        "tfrank_sel.export.releases": "publish remove_old roll_back versions",
        "tfrank_sel.export.runtimes": "onnx search_engine",
        "tfrank_sel.export.saved_model": "check_servable",
        "tfrank_sel.export.signatures": "PADDING_SCORE dense_inputs export",
    },
    "tfrank_sel.links": {
        "tfrank_sel.links": "labels",
        "tfrank_sel.links.base": "ElementaryLink Link",
        "tfrank_sel.links.bounded": "Arcsin Arctanh Log Logit Monomial NegLog1m Sin Tan",
        "tfrank_sel.links.combinators": "Capped Inverse Scaled Sum",
        "tfrank_sel.links.composite": "CompositeSigmoid CompositeSoftmax",
        "tfrank_sel.links.convexity": "critical_constant critical_gamma sigmoid_margin",
        "tfrank_sel.links.elementary": (
            "AbsPower AntiExp Arcsinh Arctan Constant Cosh Exp Identity Laplace Power Sigmoid "
            "SignedExpm1 SignedLog1p Sinh Tanh"
        ),
        "tfrank_sel.links.piecewise": (
            "Huber Interpolated PiecewiseLinear ReLU Sign SmeLU Staircase Step"
        ),
        "tfrank_sel.links.sensitivity": (
            "Sensitivity best_bias blust bust class_sensitivity constant_predictor llust "
            "sensitivity_table"
        ),
    },
    "tfrank_sel.losses": {
        "tfrank_sel.losses": "lambdas margin targets",
        "tfrank_sel.losses.bases": "ListwiseLoss mean_over_slots mean_over_terms sum_over_terms",
        "tfrank_sel.losses.catalogue": "CatalogueLoss",
        "tfrank_sel.losses.choice": "design judge",
        "tfrank_sel.losses.classes": (
            "NWayJointLoss NWayLoss NWayMeanLoss NWayPairwiseLoss ZLPRLoss joint_optimum"
        ),
        "tfrank_sel.losses.clicks": "ClickEMLoss MixtureEMLoss",
        "tfrank_sel.losses.contrastive": "InBatchInfoNCELoss InfoNCELoss mutual_information_bound",
        "tfrank_sel.losses.direct": "DirectAPLoss",
        "tfrank_sel.losses.distillation": "ADRMSELoss CoupledRankDistilLoss SpearmanLoss",
        "tfrank_sel.losses.margin": "MarginSoftmaxLoss",
        "tfrank_sel.losses.pairwise": (
            "CircleLoss LambdaLoss MarginMSELoss PairwiseHingeLoss PairwiseLogisticLoss "
            "PairwiseLoss PairwiseMSELoss PairwiseQuantileLoss PairwiseSoftZeroOneLoss "
            "YetiLogisticLoss"
        ),
        "tfrank_sel.losses.pointwise": (
            "JRCLoss MeanSquaredLoss MultiClassLoss OrdinalLoss RCRLoss SigmoidCrossEntropyLoss"
        ),
        "tfrank_sel.losses.relaxed": (
            "ApproxAPLoss ApproxDCGLoss ApproxMRRLoss ApproxNDCGLoss ApproxPrecisionLoss "
            "ApproxRecallLoss NeuralSortCrossEntropyLoss NeuralSortNDCGLoss SoftRankLoss"
        ),
        "tfrank_sel.losses.rg": "RG2Loss RGCrossLoss",
        "tfrank_sel.losses.sampled": "GumbelLoss",
        "tfrank_sel.losses.selective": (
            "ContrastiveMatchingLoss DecomposedMatchingLoss FenchelYoungLoss MatchingLoss "
            "SelectiveSigmoidCrossEntropyLoss SelectiveSigmoidLoss "
            "SelectiveSoftmaxCrossEntropyLoss SelectiveSoftmaxLoss"
        ),
        "tfrank_sel.losses.softmax": (
            "CalibratedSoftmaxLoss ListMLELoss PolyOneSoftmaxLoss SoftmaxLoss UniqueSoftmaxLoss"
        ),
        "tfrank_sel.losses.topk": (
            "SmoothTopKLoss TopKCrossEntropyLoss TopKHingeLoss hit_at_k mean_over_relevant "
            "recall_structured"
        ),
    },
    "tfrank_sel.metrics": {
        "tfrank_sel.metrics": "averaging significance ties",
        "tfrank_sel.metrics.base": "BinaryMetric ComparingMetric ListwiseMetric RankedMetric",
        "tfrank_sel.metrics.calibration": "BrierScore ECE ItemMetric LogitNorm PCOC Reliability",
        "tfrank_sel.metrics.correlation": "ARP AUC BPref KendallTau OPA SpearmanRho",
        "tfrank_sel.metrics.diversity": (
            "AlphaDCG AlphaNDCG DiversityMetric PrecisionIA SubtopicRecall"
        ),
        "tfrank_sel.metrics.evaluator": "Evaluator",
        "tfrank_sel.metrics.presets": "tfr trec_eval",
        "tfrank_sel.metrics.ranked": (
            "DCG ERR Hits MAP MRR NDCG PWA Precision RBP RPrecision Recall"
        ),
        "tfrank_sel.metrics.runs": "comb_sum compare reciprocal_rank_fusion",
        "tfrank_sel.metrics.selective": (
            "ExcessError RegionAbsoluteError RegionDivergence by_region quantile_edges"
        ),
    },
    "tfrank_sel.models": {
        "tfrank_sel.models": "als boosted_trees",
        "tfrank_sel.models.boosted_trees": "BoostedTrees",
        "tfrank_sel.models.explanation": "Contributions explain",
        "tfrank_sel.models.layers": "CosineClassifier LogQCorrection SoftTopK",
        "tfrank_sel.models.preparation": "Preparation WithinList",
        "tfrank_sel.models.recalibrated": "Recalibrated recalibrate",
        "tfrank_sel.models.scorers": (
            "Dropout Ensemble ListScorer Perceptron Prepared Scorer TwoTower"
        ),
        "tfrank_sel.models.sequences": "SequenceEncoder",
        "tfrank_sel.models.summary": "moments",
        "tfrank_sel.models.transfer": "warm_start",
    },
    "tfrank_sel.models.als": {
        "tfrank_sel.distribution": "CollectiveGroup",
        "tfrank_sel.models.als.alternation": "ItemSolver",
        "tfrank_sel.models.als.factorizer": "RGFactorizer",
        "tfrank_sel.models.als.objectives": "Objective RG2 RGCross WeightedSquare",
        "tfrank_sel.models.als.towers": "fit_towers",
        "tfrank_sel.models.als.tuning": "tune",
    },
    "tfrank_sel.objectives": {
        "tfrank_sel.objectives.boosters": (
            "lightgbm lightgbm_metric train_catboost xgboost xgboost_metric"
        ),
        "tfrank_sel.objectives.derivatives": "Derivatives",
    },
    "tfrank_sel.pipelines": {
        "tfrank_sel.pipelines": "candidates",
        "tfrank_sel.pipelines.analysis.drift": "anomalies",
        "tfrank_sel.pipelines.analysis.gates": "GateError failures",
        "tfrank_sel.pipelines.analysis.statistics": "DataSplit Statistics Summary",
        "tfrank_sel.pipelines.analysis.step": "check_named",
        "tfrank_sel.pipelines.configuration": "Configuration ConfigurationError load",
        "tfrank_sel.pipelines.configuration.data": "Gates",
        "tfrank_sel.pipelines.configuration.training": "Settings",
        "tfrank_sel.pipelines.console": "Activity Progress",
        "tfrank_sel.pipelines.evaluation.blessing": "Blessing Rules bless",
        "tfrank_sel.pipelines.evaluation.evaluation": "MetricComparison evaluate",
        "tfrank_sel.pipelines.evaluation.saved": "SavedScorer",
        "tfrank_sel.pipelines.ingestion.inputs": "Job columns",
        "tfrank_sel.pipelines.ingestion.stored_lists": "StoredLists",
        "tfrank_sel.pipelines.learning.preparation": "fit_preparation",
        "tfrank_sel.pipelines.push.step": "side_by_side",
        "tfrank_sel.pipelines.reporting.tables": "comparison_table",
        "tfrank_sel.pipelines.run.results": "Run open_run",
    },
    "tfrank_sel.plots": {
        "tfrank_sel.plots.axes": "draw_link draw_loss draw_reliability",
    },
    "tfrank_sel.presets": {
        "tfrank_sel.presets": "tfr tfrs",
    },
    "tfrank_sel.presets.tfr": {
        "tfrank_sel.presets.tfr": "losses metrics",
        "tfrank_sel.presets.tfr.sorting": "sort_by_scores",
    },
    "tfrank_sel.presets.tfrs": {
        "tfrank_sel.presets.tfrs": "layers metrics models tasks",
        "tfrank_sel.presets.tfrs.models": "Model",
    },
    "tfrank_sel.presets.tfrs.layers": {
        "tfrank_sel.presets.tfrs.layers": "dcn factorized_top_k",
    },
    "tfrank_sel.recommend": {
        "tfrank_sel.recommend.candidates": "Factors Neighbours Popular Source Successors",
        "tfrank_sel.recommend.encoder": "Encoder",
        "tfrank_sel.recommend.recommender": "Recommender",
    },
    "tfrank_sel.serving": {
        "tfrank_sel.serving": "client deployment",
    },
    "tfrank_sel.training": {
        "tfrank_sel.training": "trees",
        "tfrank_sel.training.callbacks": "Hooks",
        "tfrank_sel.training.candidates": "Candidate",
        "tfrank_sel.training.fitting": "StartError train",
        "tfrank_sel.training.lists": "PreparedLists",
    },
    "tfrank_sel.trec": {
        "tfrank_sel.trec.comparison": "Comparison compare",
        "tfrank_sel.trec.runs": "comb_sum evaluate measures reciprocal_rank_fusion",
    },
}
REGISTERED = {
    "tfrank_sel.data.spec": "FeatureSpec",
    "tfrank_sel.links.bounded": "Arcsin Arctanh Log Logit Monomial NegLog1m Sin Tan",
    "tfrank_sel.links.combinators": "Capped Inverse Scaled Sum",
    "tfrank_sel.links.composite": "CompositeSigmoid CompositeSoftmax",
    "tfrank_sel.links.elementary": (
        "AbsPower AntiExp Arcsinh Arctan Constant Cosh Exp Identity Laplace Power Sigmoid "
        "SignedExpm1 SignedLog1p Sinh Tanh"
    ),
    "tfrank_sel.links.piecewise": (
        "Huber Interpolated PiecewiseLinear ReLU Sign SmeLU Staircase Step"
    ),
    "tfrank_sel.losses.bases": "mean_over_slots mean_over_terms sum_over_terms",
    "tfrank_sel.losses.catalogue": "CatalogueLoss",
    "tfrank_sel.losses.classes": "NWayJointLoss NWayMeanLoss NWayPairwiseLoss ZLPRLoss",
    "tfrank_sel.losses.clicks": "ClickEMLoss MixtureEMLoss",
    "tfrank_sel.losses.contrastive": "InBatchInfoNCELoss InfoNCELoss",
    "tfrank_sel.losses.direct": "DirectAPLoss",
    "tfrank_sel.losses.distillation": "ADRMSELoss CoupledRankDistilLoss SpearmanLoss",
    "tfrank_sel.losses.lambdas": (
        "CallbackLambdaWeight DCGLambdaWeight LabelDiffLambdaWeight NDCGLambdaWeight "
        "NDCGLambdaWeightV2 PrecisionLambdaWeight YetiDCGLambdaWeight"
    ),
    "tfrank_sel.losses.margin": "ArcFace CosFace MarginSoftmaxLoss NormFace",
    "tfrank_sel.losses.pairwise": (
        "CircleLoss LambdaLoss MarginMSELoss PairwiseHingeLoss PairwiseLogisticLoss "
        "PairwiseMSELoss PairwiseQuantileLoss PairwiseSoftZeroOneLoss YetiLogisticLoss"
    ),
    "tfrank_sel.losses.pointwise": (
        "JRCLoss MeanSquaredLoss MultiClassLoss OrdinalLoss RCRLoss SigmoidCrossEntropyLoss"
    ),
    "tfrank_sel.losses.relaxed": (
        "ApproxAPLoss ApproxDCGLoss ApproxMRRLoss ApproxNDCGLoss ApproxPrecisionLoss "
        "ApproxRecallLoss NeuralSortCrossEntropyLoss NeuralSortNDCGLoss SoftRankLoss"
    ),
    "tfrank_sel.losses.rg": "RG2Loss RGCrossLoss",
    "tfrank_sel.losses.sampled": "GumbelLoss",
    "tfrank_sel.losses.selective": (
        "ContrastiveMatchingLoss DecomposedMatchingLoss FenchelYoungLoss MatchingLoss "
        "SelectiveSigmoidCrossEntropyLoss SelectiveSigmoidLoss SelectiveSoftmaxCrossEntropyLoss "
        "SelectiveSoftmaxLoss"
    ),
    "tfrank_sel.losses.softmax": (
        "CalibratedSoftmaxLoss ListMLELoss PolyOneSoftmaxLoss SoftmaxLoss UniqueSoftmaxLoss"
    ),
    "tfrank_sel.losses.targets": "Gains Shares Softmax",
    "tfrank_sel.losses.topk": (
        "SmoothTopKLoss TopKCrossEntropyLoss TopKHingeLoss hit_at_k mean_over_relevant "
        "recall_structured"
    ),
    "tfrank_sel.metrics.averaging": "AllLists ByRelevance DefinedLists",
    "tfrank_sel.metrics.calibration": "BrierScore ECE LogitNorm PCOC",
    "tfrank_sel.metrics.correlation": "ARP AUC BPref KendallTau OPA SpearmanRho",
    "tfrank_sel.metrics.diversity": "AlphaDCG AlphaNDCG PrecisionIA SubtopicRecall",
    "tfrank_sel.metrics.ranked": "DCG ERR Hits MAP MRR NDCG PWA Precision RBP RPrecision Recall",
    "tfrank_sel.metrics.selective": "ExcessError RegionAbsoluteError RegionDivergence",
    "tfrank_sel.metrics.ties": "Averaged InOrder Reversed Shuffled",
    "tfrank_sel.models.als.factorizer": "RGFactorizer",
    "tfrank_sel.models.als.objectives": "RG2 RGCross WeightedSquare",
    "tfrank_sel.models.boosted_trees": "BoostedTrees",
    "tfrank_sel.models.layers": "CosineClassifier LogQCorrection SoftTopK",
    "tfrank_sel.models.preparation": "Preparation WithinList",
    "tfrank_sel.models.recalibrated": "Recalibrated",
    "tfrank_sel.models.scorers": "Dropout Ensemble ListScorer Perceptron Prepared Scorer TwoTower",
    "tfrank_sel.models.sequences": "SequenceEncoder",
    "tfrank_sel.ops.ranking": "exponential_gain inverse_discount linear_gain log2_discount",
    "tfrank_sel.presets.tfr.losses": "sum_times_slots",
    "tfrank_sel.presets.tfrs.layers.dcn": "Cross",
    "tfrank_sel.recommend.candidates": "Factors Neighbours Popular Successors",
    "tfrank_sel.recommend.columns": "ItemColumns UserColumns",
    "tfrank_sel.recommend.encoder": "Encoder",
    "tfrank_sel.recommend.recommender": "Recommender",
}
