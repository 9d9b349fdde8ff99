"""Names of tensorflow-ranking and TensorFlow Recommenders, and what stands for each here."""

# classes of `tfr.keras.losses`, and functions of `presets.tfr.losses`
LOSSES = {
    "ApproxMRRLoss": "approx_mrr_loss",
    "ApproxNDCGLoss": "approx_ndcg_loss",
    "CalibratedSoftmaxLoss": "calibrated_softmax_loss",
    "ClickEMLoss": "click_em_loss",
    "CoupledRankDistilLoss": "coupled_rankdistil_loss",
    "GumbelApproxNDCGLoss": "gumbel_approx_ndcg_loss",
    "ListMLELoss": "list_mle_loss",
    "MeanSquaredLoss": "mean_squared_loss",
    "MixtureEMLoss": "mixture_em_loss",
    "OrdinalLoss": "ordinal_loss",
    "PairwiseHingeLoss": "pairwise_hinge_loss",
    "PairwiseLogisticLoss": "pairwise_logistic_loss",
    "PairwiseMSELoss": "pairwise_mse_loss",
    "PairwiseSoftZeroOneLoss": "pairwise_soft_zero_one_loss",
    "SigmoidCrossEntropyLoss": "sigmoid_cross_entropy_loss",
    "SoftmaxLoss": "softmax_loss",
    "UniqueSoftmaxLoss": "unique_softmax_loss",
    "YetiLogisticLoss": "yeti_logistic_loss",
    "get": "get",
}

# classes of `tfr.keras.metrics`, and functions of `presets.tfr.metrics`
METRICS = {
    "AlphaDCGMetric": "alpha_dcg",
    "ARPMetric": "arp",
    "DCGMetric": "dcg",
    "HitsMetric": "hits",
    "MeanAveragePrecisionMetric": "mean_average_precision",
    "MRRMetric": "mrr",
    "NDCGMetric": "ndcg",
    "OPAMetric": "ordered_pair_accuracy",
    "PrecisionIAMetric": "precision_ia",
    "PrecisionMetric": "precision",
    "RecallMetric": "recall",
    "default_keras_metrics": "default_keras_metrics",
    "get": "get",
}

# classes of `tfr.keras.losses` and `losses.lambdas`, under one name
LAMBDA_WEIGHTS = (
    "DCGLambdaWeight",
    "LabelDiffLambdaWeight",
    "NDCGLambdaWeight",
    "NDCGLambdaWeightV2",
    "PrecisionLambdaWeight",
    "YetiDCGLambdaWeight",
)

# functions of `tfr.utils` and `tfr.keras.utils`, and of `ops.ranking`
FUNCTIONS = {
    "identity": "linear_gain",
    "inverse": "inverse_discount",
    "log2_inverse": "log2_discount",
    "pow_minus_1": "exponential_gain",
}

# argument of a lambda weight of `tfr.keras.losses`, and of one of `losses.lambdas`
ARGUMENTS = {"topn": "k", "gain_fn": "gain", "rank_discount_fn": "discount"}

# arguments that ours do not have, as they would change nothing
NEEDLESS = {"ragged", "shuffle_ties"}

# `tf.keras.losses.Reduction`, and the strings that both versions of Keras take
REDUCTIONS = {
    "AUTO": "sum_over_batch_size",
    "SUM_OVER_BATCH_SIZE": "sum_over_batch_size",
    "SUM": "sum",
    "NONE": "none",
}

# functions whose seed changes nothing here, as ties keep their order
SEEDED = {"utils.sort_by_scores", "keras.metrics.AlphaDCGMetric"}

# losses that take no lambda weight
UNWEIGHTED = {
    "ApproxMRRLoss",
    "ApproxNDCGLoss",
    "CalibratedSoftmaxLoss",
    "GumbelApproxNDCGLoss",
    "MixtureEMLoss",
    "UniqueSoftmaxLoss",
}

# names of the keys, whose values are the strings that `get` takes
KEYS = {
    "RankingLossKey": {x.upper() for x in LOSSES.values()}
    - {"CLICK_EM_LOSS", "GET", "MIXTURE_EM_LOSS"},
    "RankingMetricKey": {"MAP", *(x.upper() for x in METRICS.values())}
    - {"DEFAULT_KERAS_METRICS", "GET", "MEAN_AVERAGE_PRECISION", "RECALL"},
}

TEXTS = (
    "Give the texts of all items, `[batch_size * list_size]`, to a `TextClassifier` of KerasHub "
    "with `num_classes=1`, and its scores, as `[batch_size, list_size]`, to a loss of this package."
)
# names of TensorFlow Recommenders that `presets.tfrs` has, too
RECOMMENDERS = {
    "Model",
    "layers.dcn.Cross",
    "layers.factorized_top_k.BruteForce",
    "layers.factorized_top_k.Streaming",
    "metrics.FactorizedTopK",
    "models.Model",
    "tasks.Ranking",
    "tasks.Retrieval",
}

# what a person must change, and by what
BY_HAND = {
    "data.parse_from_example_list": "Call `data.parsing.parse_elwc(serialized, "
    "data.ListFeatures(example_feature_spec, context_feature_spec))`.",
    "data.parse_from_example_in_example": "Call `data.parsing.parse_example_in_example`, "
    "which takes a `data.ListFeatures`.",
    "data.parse_from_sequence_example": "Call `data.parsing.parse_sequence_example`, "
    "which takes a `data.ListFeatures`.",
    "data.parse_from_tf_example": "Call `data.parsing.parse_example`, "
    "which takes a `data.ListFeatures`.",
    "data.build_ranking_dataset": "Call `data.batches(files, features, batch_size=..., "
    "parse=data.parsing.parse_elwc)`, where `features` is a `data.ListFeatures` with a `label`.",
    "keras.model.ModelBuilder": "Build a functional Keras model: inputs, preprocessing, scorer.",
    "keras.model.FeatureSpecInputCreator": "Make a `keras.Input` for each feature; its shape is "
    "`[None, size]` for features of items.",
    "keras.model.DNNScorer": "Use `keras.layers.Dense`, which scores lists of any length, or "
    "`models.Scorer` for numeric features.",
    "keras.model.GAMScorer": "No counterpart: add one small network per feature in Keras.",
    "keras.layers.create_tower": "Use a `keras.Sequential` of `keras.layers.Dense`.",
    "keras.layers.DocumentInteractionAttention": "Use `models.ListScorer(num_heads=2)`, whose "
    "items attend to one another.",
    "keras.layers.FlattenList": "Remove it: Keras layers apply to the last axis of "
    "`[batch_size, list_size, size]`.",
    "keras.layers.RestoreList": "Remove it together with `FlattenList`.",
    "keras.layers.ConcatFeatures": "Multiply the context feature by `keras.ops.ones_like` of a "
    "feature of the items, then concatenate.",
    "keras.layers.GAMLayer": "As `GAMScorer`: add one small network per feature in Keras.",
    "keras.pipeline.SimpleDatasetBuilder": "Call `data.batches` as for `build_ranking_dataset`.",
    "keras.saved_model.Signatures": "Call `export.export`: the names of the signatures are kept.",
    "keras.network": "Subclass `keras.Model`, or build a functional one.",
    "keras.estimator": "Build a Keras model: TensorFlow 2.16 has no estimators.",
    "estimator": "Build a Keras model: TensorFlow 2.16 has no estimators.",
    "model": "Build a Keras model: TensorFlow 2.16 has no estimators.",
    "losses": "Use `presets.tfr.losses`, or the losses of this package.",
    "metrics": "Use `presets.tfr.metrics`, or the metrics of this package.",
    "keras.losses": "Use `presets.tfr.losses`, or the losses of this package.",
    "keras.metrics": "Use `presets.tfr.metrics`, or the metrics of this package.",
    "keras.pipeline": "Call `model.compile` and `model.fit`, or run `tfrank-sel-pipelines`.",
    "feature": "Use Keras' preprocessing layers, such as `keras.layers.StringLookup`.",
    "keras.feature": "Use Keras' preprocessing layers, such as `keras.layers.StringLookup`.",
    "data": "Read with `data.batches`, or call the parsers in `data.parsing`.",
    "head": "Build a Keras model: TensorFlow 2.16 has no estimators.",
    "utils": "No counterpart: write it with the functions of TensorFlow, or use a loss or metric "
    "of this package, which does this itself.",
    "keras.utils": "No counterpart: give any function of a tensor as gain or discount.",
    "keras.layers": "No counterpart: use Keras' layers.",
    "keras.model": "Build a functional Keras model: inputs, preprocessing, scorer.",
    "keras.saved_model": "Call `export.export`.",
    "keras.strategy_utils": "Use `tf.distribute` itself.",
    "keras.canned": "Use `models.Scorer`, or one small network per feature in Keras.",
    "keras.losses.RankingLossKey": "Give the key as a string. All keys are "
    "`presets.tfr.losses.KEYS`.",
    "keras.metrics.RankingMetricKey": "Give the key as a string. All keys are "
    "`presets.tfr.metrics.KEYS`.",
    "ext": TEXTS,
    "extension": TEXTS,
    "extension.tfrbert": TEXTS,
    "tensorflow_recommenders.layers.factorized_top_k.ScaNN": "Use `BruteForce`, or search the "
    "vectors with `models.als.nearest.ItemIndex` (Faiss).",
    "tensorflow_recommenders.layers.factorized_top_k.TopK": "Subclass `keras.Model`.",
    "tensorflow_recommenders.layers.feature_interaction": "Use `layers.dcn.Cross`, or the layers "
    "of keras-rs.",
    "tensorflow_recommenders.layers.embedding": "Use `keras_rs.layers.DistributedEmbedding`.",
    "tensorflow_recommenders.layers.blocks": "Use `keras.Sequential` and `layers.dcn.Cross`.",
    "tensorflow_recommenders": "No counterpart: use the layers of Keras or keras-rs.",
}
NOT_CALLED = (
    "Only its calls are rewritten: the preset is a function. To subclass or to compare "
    "types, use the class in `tfrank_sel.losses` or `tfrank_sel.metrics`."
)
OTHERWISE = "No counterpart is known: see docs/migrate.md."
