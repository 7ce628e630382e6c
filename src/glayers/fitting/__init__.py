"""Loss -> parameters: one engine for every map, in torch. Importing this folder needs the `fit` extra."""
