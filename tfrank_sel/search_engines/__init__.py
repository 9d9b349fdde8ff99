"""Search engines: their features, logs and models by HTTP, for `tfrank-sel-engine`.

`judgments` reads files of judgments, `engine` has what all engines do, `plugin`, `elastic` and
`solr` their requests, `logged` joins judgments with features and compares scores. Only `distilled`,
which writes the ranker of a run, needs TensorFlow.
"""
