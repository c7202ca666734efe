"""Federated logistic regression by Newton's method, as a method of another distribution would bring it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import expit

from multicentre.data import TableData
from multicentre.extend import (
    PLAIN,
    FederatedEstimator,
    Integer,
    Message,
    Metric,
    Real,
    Release,
    Session,
    SitePart,
    array,
    number,
    step,
)


@dataclass(frozen=True)
class Coefficients(Message):
    """Current coefficients, the intercept first."""

    coef: np.ndarray = array("coefficients", ("d",))


@dataclass(frozen=True)
class Derivatives(Release):
    """Log-likelihood of a site's patients and its derivatives."""

    log_likelihood: float = number("log-likelihood", bound=2.0**30)
    gradient: np.ndarray = array("gradient", ("d",), bound=2.0**40)
    information: np.ndarray = array("information matrix", ("d", "d"), bound=2.0**40)


class LogisticSite(SitePart):
    """Holds a table with two classes."""

    method = "fed-logistic"
    holds = TableData

    def n_parameters(self, request: Message) -> int:
        return len(request.coef)

    @step(releases=Derivatives, when="every round", summed=True)
    def derive(self, request: Coefficients) -> Derivatives:
        """Add up the log-likelihood and its first two derivatives."""
        X, y = np.column_stack([np.ones(len(self.data)), self.data.X]), self.data.y
        eta = X @ request.coef
        chance = expit(eta)
        information = (X * (chance * (1.0 - chance))[:, None]).T @ X
        value = float(y @ eta - np.logaddexp(0.0, eta).sum())
        return Derivatives(value, X.T @ (y - chance), information, patients=len(y))


class FedLogistic(FederatedEstimator):
    """Logistic regression over all sites' patients; equals the maximum likelihood fit of the pooled rows."""

    site_part = LogisticSite
    metrics = {"log_loss": Metric("log loss", "lower", "nats", "mean negative log-likelihood per patient")}
    parameter_ranges = {"n_features": Integer(1), "max_iter": Integer(1), "tol": Real(0, open="low")}
    saved_attributes = {"coef_": PLAIN, "intercept_": PLAIN}

    def __init__(self, n_features: int, max_iter: int = 25, tol: float = 1e-10) -> None:
        self.n_features = n_features
        self.max_iter = max_iter
        self.tol = tol

    def _fit(self, session: Session) -> None:
        rounds = session.rounds(self.max_iter, Coefficients, lambda: Coefficients(np.zeros(self.n_features + 1)))
        for _ in rounds:
            total = session.sum(LogisticSite.derive, rounds.state)
            change = np.linalg.solve(total.information, total.gradient)
            rounds.record(log_likelihood=total.log_likelihood, change=float(np.abs(change).max()))
            rounds.state = Coefficients(rounds.state.coef + change)
            if np.abs(change).max() < self.tol:
                rounds.stop()
        self.intercept_, self.coef_, self.history_ = float(rounds.state.coef[0]), rounds.state.coef[1:], rounds.history

    def assess(self, data, labels=None, *, training=None, training_labels=None):
        eta = data.X @ self.coef_ + self.intercept_
        return {"log_loss": float(np.mean(np.logaddexp(0.0, eta) - data.y * eta))}
