"""Make a trained classifier's probabilities true, and prove that they are."""
