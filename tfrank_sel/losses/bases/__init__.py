"""Base classes of losses: of lists of relevances, of scores, of score vectors, sampled ones."""
