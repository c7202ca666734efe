"""FedStack: a mixture of fitted models, with the weights that predict best for patients whom they did not see."""

from multicentre.survival.stack.estimator import FedStack, split_held_out

__all__ = ["FedStack", "split_held_out"]
