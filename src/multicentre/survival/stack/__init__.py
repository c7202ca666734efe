"""FedStack: mixture of fitted models, with weights that minimise the error on held-out patients."""

from multicentre.survival.stack.estimator import FedStack, split_held_out

__all__ = ["FedStack", "split_held_out"]
