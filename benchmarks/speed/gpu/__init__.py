"""Speed on a GPU, also where TensorFlow cannot be installed: by JAX's XLA client."""
