"""Variational auto-encoders (VAE, mc-VAE) trained by federated averaging; comparison methods for Fed-mv-PPCA."""

from __future__ import annotations

from multicentre_papers.baselines.vae.estimator import FedMCVAE, FedVAE

__all__ = ["FedMCVAE", "FedVAE"]
