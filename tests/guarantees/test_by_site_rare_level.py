"""One rare level hides its own estimate at a hospital, and no other: for every method with estimates by site."""

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import minimize
from scipy.special import expit
from sklearn.linear_model import LogisticRegression, PoissonRegressor
from sksurv.linear_model import CoxPHSurvivalAnalysis
from sksurv.util import Surv

import multicentre as mc

RARE_AT = ("oslo", "turin")


def _frame(seed: int, n_rare: int, n: int = 800) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame({"x": rng.normal(size=n), "z": rng.normal(size=n), "rare": np.zeros(n), "arm": "a"})
    frame.loc[: n_rare - 1, "rare"] = 1.0
    frame.loc[n_rare : n_rare + n // 2, "arm"] = "b"
    frame.loc[: n_rare - 1, "arm"] = "rare"
    predictor = 0.6 * frame.x - 0.3 * frame.z
    frame["event"] = (predictor + rng.logistic(size=n) > 0).astype(int)
    frame["count"] = rng.poisson(np.exp(0.3 * predictor)).astype(float)
    frame["grade"] = (predictor + rng.logistic(size=n) > 0).astype(int) + (rng.random(n) < 0.4)
    time, end = rng.exponential(np.exp(-predictor)), rng.exponential(3.0, n)
    frame["time"], frame["died"] = np.minimum(time, end), time <= end
    return frame


FRAMES = {"lyon": _frame(0, 200), "oslo": _frame(1, 4), "turin": _frame(2, 0)}
COVARIATES = ["x", "z", "rare"]


def _federate(outcome: str, classes: tuple[str, ...] = ()) -> mc.Federation:
    sites = {}
    for site, frame in FRAMES.items():
        y = frame[outcome].to_numpy()
        kind = {"classes": classes} if classes else {"outcome": "number"}
        sites[site] = mc.data.TableData(frame[COVARIATES].to_numpy(), y, columns=COVARIATES, **kind)
    return mc.Federation.in_process(sites)


def _logistic(frame: pd.DataFrame, columns: tuple[str, ...] = ("x", "z")) -> dict[str, float]:
    fit = LogisticRegression(C=np.inf, tol=1e-10, max_iter=1000).fit(frame[list(columns)], frame.event)
    return dict(zip(columns, fit.coef_[0].tolist(), strict=True))


def _poisson(frame: pd.DataFrame) -> float:
    return PoissonRegressor(alpha=0.0, tol=1e-10, max_iter=1000).fit(frame[["x", "z"]], frame["count"]).coef_[0]


def _multinomial(frame: pd.DataFrame) -> float:
    fit = LogisticRegression(C=np.inf, tol=1e-10, max_iter=1000).fit(frame[["x", "z"]], frame.grade)
    return fit.coef_[1, 0] - fit.coef_[0, 0]


def _ordinal(frame: pd.DataFrame) -> float:
    X, grade = frame[["x", "z"]].to_numpy(), frame.grade.to_numpy()

    def loss(values: np.ndarray) -> float:
        ends = np.array([-np.inf, values[0], values[0] + np.exp(values[1]), np.inf])
        predictor = X @ values[2:]
        return -np.log(expit(ends[grade + 1] - predictor) - expit(ends[grade] - predictor)).sum()

    return minimize(loss, np.zeros(4), method="BFGS", options={"gtol": 1e-6}).x[2]


def _cox(frame: pd.DataFrame) -> float:
    followed = Surv.from_arrays(frame.died.to_numpy(), frame.time.to_numpy())
    return CoxPHSurvivalAnalysis(ties="efron", tol=1e-10).fit(frame[["x", "z"]], followed).coef_[0]


YES = ("no", "yes")
GRADES = ("none", "mild", "severe")
CASES = {
    "logistic": (mc.regression.FedGLM("binomial"), "event", YES, lambda frame: _logistic(frame)["x"]),
    "poisson": (mc.regression.FedGLM("poisson"), "count", (), _poisson),
    "multinomial": (mc.regression.FedMultinomialRegression(), "grade", GRADES, _multinomial),
    "ordinal": (mc.regression.FedOrdinalRegression(), "grade", GRADES, _ordinal),
}


def _check(estimates: pd.DataFrame, oracle, *, tolerance: float = 1e-4) -> None:
    columns = estimates.column.map(lambda name: name if isinstance(name, str) else name[1])
    first = estimates.assign(name=columns).drop_duplicates(["site", "name"]).set_index(["site", "name"])
    for site in RARE_AT:
        assert first.loc[(site, "x"), "estimate"] == pytest.approx(oracle(FRAMES[site]), abs=tolerance)
        assert np.isfinite(first.loc[(site, "x"), "standard_error"])
        assert not first.loc[(site, "x"), "reason"]
        assert np.isnan(first.loc[(site, "rare"), "estimate"])
        assert "rare" in first.loc[(site, "rare"), "reason"]
    assert np.isfinite(first.loc["lyon", "estimate"]).all()


@pytest.mark.parametrize("case", CASES)
def test_a_rare_level_hides_itself_only(case):
    estimator, outcome, classes, oracle = CASES[case]
    model = estimator.fit(_federate(outcome, classes))
    _check(model.by_site().to_frame(), oracle)


def test_a_rare_level_hides_itself_only_in_cox():
    sites = {
        site: mc.data.SurvivalData(
            frame[COVARIATES].to_numpy(), frame.time.to_numpy(), frame.died.to_numpy(), columns=COVARIATES
        )
        for site, frame in FRAMES.items()
    }
    model = mc.survival.FedCox().fit(mc.Federation.in_process(sites))
    _check(model.by_site().to_frame(), _cox, tolerance=1e-3)


def test_a_study_compares_the_sites_by_the_estimates_that_remain():
    from multicentre.studies.by_site import estimates_by_site

    for case in ("logistic", "multinomial", "ordinal"):
        estimator, outcome, classes, _ = CASES[case]
        frame, figures = estimates_by_site(estimator.fit(_federate(outcome, classes)), ["x"])
        assert frame is not None, case
        assert np.isfinite(frame.estimate).all(), case
        assert ["x" in figure.title for figure in figures] == [True] * len(frame.column.unique()), case


def test_a_rare_level_of_a_formula_hides_itself_only():
    sites = {}
    for site, frame in FRAMES.items():
        sites[site] = mc.data.TableData.from_frame(
            frame[["x", "z", "arm", "event"]], outcome="event", classes=(0, 1), categories={"arm": ["a", "b", "rare"]}
        )
    model = mc.regression.FedGLM("binomial", formula="event ~ x + z + arm").fit(mc.Federation.in_process(sites))
    frame = model.by_site().to_frame().set_index(["site", "column"])
    for site in RARE_AT:
        rows = FRAMES[site].assign(b=(FRAMES[site].arm == "b").astype(float))
        right = _logistic(rows, ("x", "z", "b"))
        assert frame.loc[(site, "x"), "estimate"] == pytest.approx(right["x"], abs=1e-4)
        assert frame.loc[(site, "arm=b"), "estimate"] == pytest.approx(right["b"], abs=1e-4)
        assert np.isnan(frame.loc[(site, "arm=rare"), "estimate"])
        assert "arm=rare" in frame.loc[(site, "arm=rare"), "reason"]


@pytest.mark.parametrize("missing", ["complete", "indicator", "mean"])
def test_few_missing_values_refuse_no_site(missing):
    sites = {}
    for site, frame in FRAMES.items():
        X = frame[["x", "z"]].to_numpy(copy=True)
        X[:3, 1] = np.nan
        sites[site] = mc.data.TableData(X, frame.event.to_numpy(), columns=["x", "z"], classes=YES)
    model = mc.regression.FedGLM("binomial", missing=missing).fit(mc.Federation.in_process(sites))
    frame = model.by_site().to_frame().set_index(["site", "column"])
    assert np.isfinite(frame.xs("x", level="column").estimate).all()
    if missing == "complete":
        rows = FRAMES["oslo"].iloc[3:]
        assert frame.loc[("oslo", "z"), "estimate"] == pytest.approx(_logistic(rows)["z"], abs=1e-4)


def test_a_site_without_a_column_that_varies_gives_the_reason():
    sites = {}
    for site, frame in FRAMES.items():
        y = frame.event.to_numpy()
        sites[site] = mc.data.TableData(frame[["rare"]].to_numpy(), y, columns=["rare"], classes=YES)
    estimates = mc.regression.FedGLM("binomial").fit(mc.Federation.in_process(sites)).by_site()
    assert set(estimates.refused) == set(RARE_AT)
    assert "rare" in estimates.refused["oslo"]


def test_columns_are_not_left_out_of_a_fit_that_is_not_by_site():
    one = {"oslo": mc.data.TableData(FRAMES["oslo"][COVARIATES].to_numpy(), FRAMES["oslo"].event.to_numpy(),
                                     columns=COVARIATES, classes=YES)}  # fmt: skip
    with pytest.raises(mc.errors.MulticentreError):
        mc.regression.FedGLM("binomial").fit(mc.Federation.in_process(one))


def test_sites_under_masks_leave_no_column_out():
    from multicentre.data.rare_columns import Covariates
    from multicentre.regression.site import RegressionSite

    model = mc.regression.FedGLM("binomial").fit(_federate("event", YES))
    with pytest.raises(mc.errors.MulticentreError, match="one site only"):
        model.session.ask(RegressionSite.leave_out_rare, Covariates(("rare",)))
