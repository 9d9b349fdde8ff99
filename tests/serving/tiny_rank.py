import tensorflow as tf

from tfrank_sel.data import parsing

EXAMPLES = tf.TensorSpec([None], tf.string, name="examples")


class TinyRank(tf.Module):
    """score = f[0] + 10 * f[1] + 100 * q, where q belongs to the list."""

    def __init__(self):
        super().__init__()
        self.weights = tf.Variable([1.0, 10.0])

    def lists(self, serialized):
        examples, context, sizes = parsing.split(serialized)
        mask = tf.sequence_mask(sizes, tf.shape(examples)[1])
        spec = {
            "f": tf.io.FixedLenFeature([2], tf.float32, [0.0, 0.0]),
            "doc_id": tf.io.FixedLenFeature([], tf.string, ""),
        }
        items = tf.io.parse_example(tf.reshape(examples, [-1]), spec)
        q = tf.io.parse_example(context, {"q": tf.io.FixedLenFeature([], tf.float32, 0.0)})["q"]
        shape = tf.shape(mask)
        scores = self.score(tf.reshape(items["f"], [shape[0], shape[1], 2]), q[:, tf.newaxis])
        return tf.where(mask, scores, -1e9), mask, tf.reshape(items["doc_id"], shape)

    def score(self, f, q):
        return tf.reduce_sum(f * self.weights, -1) + 100.0 * q

    @tf.function(input_signature=[EXAMPLES])
    def serving_default(self, examples):
        scores, mask, _ = self.lists(examples)
        return {"scores": scores, "mask": mask}

    @tf.function(input_signature=[tf.TensorSpec([None, None, 2], tf.float32, name="features")])
    def predict(self, features):
        return {"scores": self.score(features, 0.0)}

    @tf.function(input_signature=[EXAMPLES, tf.TensorSpec([None], tf.int32, name="k")])
    def rank_top_k(self, examples, k):
        scores, _, ids = self.lists(examples)
        top, indices = tf.math.top_k(scores, tf.minimum(k[0], tf.shape(scores)[1]))
        ids = tf.gather(ids, indices, batch_dims=1)
        return {"scores": top, "indices": indices, "doc_ids": ids}

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="inputs")])
    def regress(self, inputs):
        spec = {
            "f": tf.io.FixedLenFeature([2], tf.float32),
            "q": tf.io.FixedLenFeature([], tf.float32, 0.0),
        }
        features = tf.io.parse_example(inputs, spec)
        return {"outputs": self.score(features["f"], features["q"])}
