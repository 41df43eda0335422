"""Recall: the index projection, candidates, ranking and the presentation of hits."""
