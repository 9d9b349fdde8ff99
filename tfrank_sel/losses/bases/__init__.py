"""Base classes of losses: over lists of relevances, scores, score vectors, and sampled losses."""
