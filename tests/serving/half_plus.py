import grpc
import tensorflow as tf
from tensorflow_serving.apis import predict_pb2, prediction_service_pb2_grpc

from tfrank_sel.serving.engine import tensor_protos

EXAMPLES = tf.TensorSpec([None], tf.string, name="inputs")


def _x(examples):
    spec = {"x": tf.io.FixedLenFeature([1], tf.float32, default_value=[0.0])}
    return tf.io.parse_example(examples, spec)["x"]


class HalfPlus(tf.Module):
    """y = x / 2 + bias, and signatures of every type and shape that a protocol must carry."""

    def __init__(self, bias):
        super().__init__()
        self.bias = tf.Variable(float(bias))

    @tf.function(input_signature=[tf.TensorSpec(None, tf.float32, name="x")])
    def predict(self, x):
        return {"y": 0.5 * x + self.bias}

    @tf.function(
        input_signature=[
            tf.TensorSpec([None, 2], tf.float32, name="a"),
            tf.TensorSpec([None], tf.string, name="b"),
        ]
    )
    def multi(self, a, b):
        return {"sum": tf.reduce_sum(a, 1), "twice": 2.0 * a, "echo": b, "echo_bytes": b}

    @tf.function(
        input_signature=[
            tf.TensorSpec([None], dtype, name=name)
            for name, dtype in (
                ("i32", tf.int32),
                ("i64", tf.int64),
                ("u8", tf.uint8),
                ("f64", tf.float64),
                ("flag", tf.bool),
            )
        ]
    )
    def types(self, i32, i64, u8, f64, flag):
        return {"i32": i32, "i64": i64, "u8": u8, "f64": f64, "flag": flag}

    @tf.function(
        input_signature=[
            tf.TensorSpec([None], tf.float32, name="x"),
            tf.TensorSpec([], tf.float32, name="k"),
        ]
    )
    def with_default(self, x, k=tf.constant(2.0)):  # noqa: B008
        return {"y": k * x}

    @tf.function(input_signature=[tf.TensorSpec([None], tf.float32, name="x")])
    def scalar_out(self, x):
        return {"total": tf.reduce_sum(x)}

    @tf.function(input_signature=[tf.TensorSpec([None, 3], tf.float32, name="x")])
    def fixed3(self, x):
        return {"y": tf.linalg.matmul(x, tf.ones([3, 1]))}

    @tf.function(input_signature=[EXAMPLES])
    def regress_x_to_y(self, inputs):
        return {"outputs": 0.5 * _x(inputs) + self.bias}

    @tf.function(input_signature=[EXAMPLES])
    def regress_x_to_y2(self, inputs):
        return {"outputs": 0.5 * _x(inputs) + self.bias + 1.0}

    @tf.function(input_signature=[tf.TensorSpec([None], tf.float32, name="x")])
    def slow(self, x):
        return {"y": tf.while_loop(lambda y: y[0] < 1e9, lambda y: [y + 1.0], [x])[0]}


def save(base, version, bias):
    """Saves a model as a server finds it: whole or not at all."""
    module = HalfPlus(bias)
    signatures = {
        name: getattr(module, name)
        for name, member in vars(HalfPlus).items()
        if hasattr(member, "get_concrete_function") and name != "predict"
    }
    aside = base.parent / f"{base.name}-{version}"
    tf.saved_model.save(module, str(aside), {"serving_default": module.predict, **signatures})
    base.mkdir(exist_ok=True)
    aside.rename(base / str(version))


class Client:
    """A gRPC client of the genuine stubs."""

    def __init__(self, port):
        self.channel = grpc.insecure_channel(f"127.0.0.1:{port}")
        self.stub = prediction_service_pb2_grpc.PredictionServiceStub(self.channel)

    def request(self, name="half", version=None, signature="", output_filter=(), **inputs):
        request = predict_pb2.PredictRequest(output_filter=output_filter)
        request.model_spec.name = name
        request.model_spec.signature_name = signature
        if version is not None:
            request.model_spec.version.value = version
        for key, array in inputs.items():
            tensor_protos.to_proto(array, request.inputs[key])
        return request

    def predict(self, *args, timeout=20.0, **kwargs):
        return self.stub.Predict(self.request(*args, **kwargs), timeout=timeout)
