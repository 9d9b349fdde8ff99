"""TFX pipeline with the same steps: on this machine, or compiled for Kubeflow."""

import importlib.util

if importlib.util.find_spec("tfx") is None:
    raise ImportError(
        "tfrank_sel.pipelines.tfx requires `tfx`, which comes with the extra `tfrank_sel[tfx]`; "
        "pipelines/tfx/environment.sh makes an environment for it"
    )
