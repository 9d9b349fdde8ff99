"""A SavedModel's warm-up requests, run as the stock server does: with XLA disabled."""

import json
import subprocess
import sys

_PROGRAM = """
import ctypes, json, pathlib, sys
import tensorflow as tf
library = pathlib.Path(tf.__file__).parent / "libtensorflow_cc.so.2"
ctypes.CDLL(str(library))._ZN10tensorflow21DisableXlaCompilationEv()
from tfrank_sel.export.saved_model import WARM_UP
from tfrank_sel.serving.engine import tensor_protos
from tfrank_sel.serving.engine.model import Model
from tfrank_sel.serving.engine.predict import predict, warmup_requests
folder = pathlib.Path(sys.argv[1])
model, answers = Model(folder, 1), []
for log in warmup_requests(folder / WARM_UP):
    request = log.predict_log.request
    sent = {name: tensor_protos.to_array(name, x) for name, x in request.inputs.items()}
    signature = model.signatures[request.model_spec.signature_name]
    outputs = predict(model, signature, sent)
    [name] = outputs.keys() & {"outputs", "scores", "contributions"}
    scores = outputs[name]
    answers.append((signature.name, scores.tolist()))
print(json.dumps(answers))
"""


def answers(folder):
    """Returns the signature and the scores of each request."""
    command = [sys.executable, "-c", _PROGRAM, str(folder)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return json.loads(done.stdout.splitlines()[-1])
