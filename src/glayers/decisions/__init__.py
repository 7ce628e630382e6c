"""Probabilities -> actions: abstain below a threshold, minimise costs, and watch a model in production."""
