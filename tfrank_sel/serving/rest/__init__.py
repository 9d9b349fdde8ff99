"""TensorFlow Serving's REST API and its JSON."""
