"""Variational auto-encoders (VAE, mc-VAE) trained by federated averaging: the methods Fed-mv-PPCA is compared with."""

from __future__ import annotations

from multicentre_papers.baselines.vae.estimator import FedMCVAE, FedVAE

__all__ = ["FedMCVAE", "FedVAE"]
