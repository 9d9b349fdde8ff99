"""Boosted trees as a model of TensorFlow."""

from tfrank_sel.models.boosted_trees.model import BoostedTrees as BoostedTrees
