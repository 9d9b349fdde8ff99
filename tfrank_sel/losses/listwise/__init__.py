"""Listwise losses: softmax cross-entropies, likelihoods of orders, approximations of metrics."""
