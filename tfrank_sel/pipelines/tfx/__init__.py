"""The same steps as a TFX pipeline: on this machine, or compiled for Kubeflow."""

import importlib.util

if importlib.util.find_spec("tfx") is None:
    raise ImportError(
        "tfrank_sel.pipelines.tfx requires `tfx`, which comes with the extra `tfrank_sel[tfx]`; "
        "pipelines/tfx/environment.sh makes an environment for it"
    )
