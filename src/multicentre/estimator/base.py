"""Base class of federated estimators, with scikit-learn's conventions and a federation in place of the data."""

from __future__ import annotations

import contextlib
import importlib
import inspect
import json
import warnings
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self, TypeVar

import numpy as np
from sklearn.base import BaseEstimator, clone
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.utils.validation import check_is_fitted

from multicentre.core import side_by_side
from multicentre.core.consortium import Consortium
from multicentre.core.model_files import check_finite, read_model, write_model
from multicentre.core.noise_plan import Plan
from multicentre.core.rounds import History
from multicentre.core.session import Answers, Session
from multicentre.core.steps import SitePart
from multicentre.data.missing.values import HandlesMissing, MissingValues
from multicentre.errors import (
    ConfigurationError,
    IntegrityError,
    LeftOutWarning,
    MulticentreError,
    SeparationWarning,
    describe_reasons,
    nearest_name,
)
from multicentre.estimator.docstrings import complete_documentation
from multicentre.estimator.figures import Figure
from multicentre.estimator.parameters import Applicable, ParameterRanges, check_applicable, check_parameters
from multicentre.estimator.presentation import Presented
from multicentre.estimator.registry import METHODS, import_class, packages
from multicentre.estimator.saved import Arrays, SavedAttributes, check_types, pack_attributes, unpack_attributes
from multicentre.privacy.card import DisclosureCard, disclosure_card
from multicentre.privacy.guarantee import Guarantee, guarantee_of, guarantee_of_plan

if TYPE_CHECKING:
    import pandas as pd

M = TypeVar("M", bound="FederatedEstimator")
_ROUNDING = 1e-9  # relative, of an epsilon that is computed again


@dataclass(frozen=True)
class Metric:
    """A metric by which fits are compared.

    Parameters
    ----------
    label : str
        Name in tables and plots.
    better : {"lower", "higher"}
        Direction in which a model is better.
    unit : str
        Unit of the values; empty without one.
    meaning : str
        Meaning of the values, in one sentence.
    """

    label: str
    better: Literal["lower", "higher"]
    unit: str
    meaning: str


class FederatedEstimator(Presented, BaseEstimator, ABC):  # type: ignore[misc]  # scikit-learn ships no types
    """Base of the package's estimators.

    A subclass names its site part, declares the ranges of its parameters and the attributes that a saved model holds,
    and runs its rounds in :meth:`_fit`.

    Attributes
    ----------
    history_ : list of dict
        One entry per round.
    n_iter_ : int
        Number of rounds; 0 for a method without rounds.
    left_out_ : dict of str to str
        Reasons of sites that refused and were left out of the fit (``refusing_sites="leave_out"``), or that were lost
        from a fit that was made again without them, by site.
    lost_ : dict of str to str
        Reasons of sites that were lost during the fit, by site. A site that is also in `left_out_` does not count; sums
        of the others count until they were lost.
    privacy_ : Guarantee or None
        Guarantee of differential privacy; None for a fit without noise.
    """

    site_part: ClassVar[type[SitePart]]
    aligned_by: ClassVar[type[SitePart] | None] = None
    """Aligns the sites' records before a fit; for methods whose sites hold different views of the same patients."""
    metrics: ClassVar[Mapping[str, Metric]] = {}
    parameter_ranges: ClassVar[ParameterRanges] = {}
    """Valid values by parameter, checked before the first call to a site."""
    applicable: ClassVar[Applicable] = {}
    """Conditions under which parameters have an effect; a fit refuses other values where they would have none."""
    saved_attributes: ClassVar[SavedAttributes] = {}
    """Attributes that the files of a fitted model hold, and their form."""
    model_parameters: ClassVar[Mapping[str, Literal["model", "models"]]] = {}
    """Parameters whose value is a fitted model or a list of them; a study file names their folders."""
    may_be_missing: ClassVar[frozenset[str]] = frozenset()
    """Saved arrays that may hold NaN or infinity: errors that could not be estimated, open intervals."""
    lacks: ClassVar[Mapping[str, str]] = {}
    """Reasons why the class lacks what similar models have, by capability or parameter."""
    same_sites: ClassVar[bool] = True
    """All sums of a fit are of the same sites: after the loss of a site, the fit is made again. False for methods of
    many rounds, which go on with the other sites."""
    history_: History
    left_out_: Mapping[str, str]
    lost_: Mapping[str, str]
    privacy_: Guarantee | None

    @property
    def predicts(self) -> Literal["classifier", "regressor"] | None:
        """Kind of the estimator in scikit-learn's tags; None for neither."""
        return None

    @property
    def _estimator_type(self) -> str | None:  # read by scikit-learn below 1.6
        return self.predicts

    def __sklearn_tags__(self) -> Any:
        """Return scikit-learn's tags, by which it tells classifiers from regressors."""
        from sklearn.utils import ClassifierTags, RegressorTags

        tags = super().__sklearn_tags__()
        tags.estimator_type = self.predicts
        tags.classifier_tags = ClassifierTags() if self.predicts == "classifier" else None
        tags.regressor_tags = RegressorTags() if self.predicts == "regressor" else None
        return tags

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        complete_documentation(cls)

    def fit(self, federation: Consortium, y: None = None) -> Self:
        """Fit the model over the sites of a federation.

        Parameters
        ----------
        federation : Federation
            Sites whose data are of the type that the method requires.
        y : None
            Not used, present for API consistency by convention.

        Returns
        -------
        self

        Raises
        ------
        ConfigurationError
            A parameter is out of its range; no site was called.
        DataError, SchemaMismatch
            The data of a site do not permit the fit, or differ in structure from those of other sites.
        RefusedByPolicy, DisclosureRefused
            The policy of a site does not permit the method, or an answer that rests on too few patients.
        QuorumLost
            Too few sites answer.
        """
        if not isinstance(federation, Consortium):
            raise ConfigurationError(
                f"federation must be a Federation; got {type(federation).__name__}",
                where=type(self).__name__,
                hint="Make one with multicentre.Federation.in_process({site: data}).",
            )
        self._check_parameters()
        parameters = json.dumps(self.get_params(deep=False), sort_keys=True, default=str)
        is_aligned = self.aligned_by is not None  # with all sites, so that none can be left out any more
        for attempt in federation.attempts(
            self.site_part, parameters, plan=self.privacy_plan(), restarts=not is_aligned
        ):
            with attempt as self._session:
                self._session.same_sites = self.same_sites and self.privacy_plan() is None
                self._fit(self._session)
        self.left_out_ = self._session.left_out
        refused = self.left_out_.keys() - self._session.consortium.lost
        self.lost_ = {site: why for site, why in self._session.absent.items() if site not in refused}
        self.privacy_ = guarantee_of(self._session)
        return self

    def fit_each_site(self) -> Answers[Self]:
        """Fit a copy of the model to the patients of each site of the last fit alone.

        The sites run the steps of the method in new sessions. With one site there is no mask: every sum describes a
        single site, its guard checks it as such, and its ledger records it and charges its budget.

        Returns
        -------
        Answers
            Fitted copies by site. ``refused`` holds the reasons of the other sites: a policy or guard refused, or the
            fit is impossible there.

        Raises
        ------
        ConfigurationError
            Sites hold different views of the same patients.
        NotFittedError
            The model was not fitted in this process.
        """
        if self.aligned_by is not None:
            raise ConfigurationError(
                "a fit of each site must be of a method whose sites hold the same columns; sites of "
                f"{type(self).__name__} hold different views",
                where="fit_each_site",
                hint="Compare the views with the method's own results.",
            )
        return self._fit_sites(self.session.consortium.unmasked())

    def fit_each_site_without_rare_columns(self) -> Answers[Self]:
        """Fit as :meth:`fit_each_site`; each fit leaves out the columns in which too few patients of its site differ.

        Only for methods whose site part can leave columns out (:mod:`multicentre.data.rare_columns`).
        """
        return self._fit_sites(replace(self.session.consortium.unmasked(), leaves_out_rare=True))

    def _fit_sites(self, consortium: Consortium) -> Answers[Self]:
        sites = self.session.sites
        branches = zip(sites, consortium.branches(len(sites)), strict=True)
        fits = side_by_side.run([partial(self._fit_alone, *branch) for branch in branches], at_once=len(sites))
        models = {site: fit for site, fit in zip(sites, fits, strict=True) if not isinstance(fit, str)}
        return Answers(models, {site: fit for site, fit in zip(sites, fits, strict=True) if isinstance(fit, str)})

    def _fit_alone(self, site: str, consortium: Consortium) -> Self | str:
        """Return a copy of the model fitted to one site, or the reason why there is none."""
        try:
            with warnings.catch_warnings():
                # A site without standard errors has none in the result, and one left out has its reason.
                for category in (ConvergenceWarning, SeparationWarning, LeftOutWarning):
                    warnings.simplefilter("ignore", category)
                model: Self = clone(self).fit(replace(consortium, sites=(site,)))
                return model
        except MulticentreError as error:
            return error.refusals.get(site) or error.without(site).placed

    def privacy_plan(self) -> Plan | None:
        """Return the noise of every release of a fit with these parameters; None without differential privacy."""
        return None

    @property
    def models_sites(self) -> bool:
        """True if the model has strata or effects of sites, so that a fit of pooled rows needs the site of each row."""
        return getattr(self, "site_effects", None) is not None

    def planned_steps(self) -> frozenset[str]:
        """Return the names of the steps that a fit with these parameters may ask of a site.

        All steps of the site part by default. A method selects a step that needs a permission (``exact_times``) only if
        the parameters require the step: a policy without the permission refuses the fit before its first request.
        """
        return frozenset(self.site_part.steps())

    def _check_parameters(self) -> None:
        """Raise ConfigurationError unless the parameters are valid; subclasses add rules on several parameters."""
        check_parameters(self.get_params(deep=False), self.parameter_ranges)
        check_applicable(self, self.applicable)

    @property
    def n_iter_(self) -> int:
        """Number of rounds."""
        check_is_fitted(self, "history_")
        return len(self.history_)

    @abstractmethod
    def _fit(self, session: Session) -> None:
        """Run the rounds and set the fitted attributes."""

    def _state(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the fitted model as arrays and values that JSON can hold."""
        return pack_attributes(self, self.saved_attributes)

    def _restore(self, arrays: Arrays, facts: Mapping[str, Any]) -> None:
        """Set the fitted attributes from the model's files; subclasses check them and set what follows from them."""
        unpack_attributes(self, self.saved_attributes, arrays, facts)

    @abstractmethod
    def assess(
        self,
        data: Any,
        labels: Sequence[str] | None = None,
        *,
        training: Any = None,
        training_labels: Sequence[str] | None = None,
    ) -> dict[str, float]:
        """Return the figures by which fits of this method are compared, on data that the caller holds.

        Parameters
        ----------
        data : data
            Patients that the fit did not see.
        labels : sequence of str, optional
            Their groups.
        training : data, optional
            Patients whose groups are known, from whom a figure may learn to tell groups apart.
        training_labels : sequence of str, optional
            Their groups.

        Returns
        -------
        dict of str to float
            Figures by name; a name of the form ``figure/part`` is that figure for one part (a view).
        """

    def figures(self, sites: Mapping[str, Any], labels: Mapping[str, Sequence[str]]) -> list[Figure]:
        """Return figures and tables of the fit, on data that the caller holds (a simulation).

        Parameters
        ----------
        sites : mapping of str to data
            Data by site.
        labels : mapping of str to sequence of str
            Group of every patient by site; empty where there are none.
        """
        return []

    def summary(self) -> pd.DataFrame:
        """Return the numbers and texts of the fit, one row each, as a frame with the column ``value``.

        Methods with a table of coefficients or curves return that table instead. The printed frame ends with sentences
        on missing values and on sites that were left out.
        """
        import pandas as pd

        from multicentre.estimator.results import with_note

        check_is_fitted(self, "history_")
        plain = int | float | str | np.generic
        facts: dict[str, Any] = ({"n_iter_": self.n_iter_} if self.n_iter_ else {}) | {
            name: value
            for name, value in sorted(vars(self).items())
            if name.endswith("_") and not name.startswith("_") and isinstance(value, plain)
        }
        if self.privacy_ is not None:
            facts["epsilon"], facts["delta"] = self.privacy_.epsilon, self.privacy_.delta
        frame = pd.DataFrame({"value": list(facts.values())}, index=list(facts), dtype=object)
        return with_note(frame, self._remarks(), model=self.describe_model())

    def __str__(self) -> str:
        """Return the parameters, and after a fit also the summary."""
        return f"{self!r}\n\n{self.summary()}" if "history_" in vars(self) else repr(self)

    def _remarks(self) -> str:
        """Return what a reader of the results must know: missing values, and sites left out or lost."""
        remarks = [self.missing_line_] if isinstance(self, HandlesMissing) else []
        if self.left_out_:
            remarks.append(f"Fitted without {describe_reasons(self.left_out_)}.")
        if counted := {site: why for site, why in self.lost_.items() if site not in self.left_out_}:
            remarks.append(f"Lost during the fit, with sums until then: {describe_reasons(counted)}.")
        return " ".join(remarks)

    @classmethod
    def disclosure_card(cls) -> DisclosureCard:
        """Return what the method lets out of a site, with the alignment of records where it needs one."""
        card = disclosure_card(cls.site_part)
        return card if cls.aligned_by is None else disclosure_card(cls.aligned_by).joined(card)

    def save(self, folder: str | Path) -> None:
        """Write the fitted model as ``model.npz`` and ``model.json``, readable without this package.

        Raises
        ------
        IntegrityError
            An array of the model is not finite.
        """
        arrays, facts = self._state()
        description = {
            "estimator": f"{type(self).__module__}:{type(self).__qualname__}",
            "parameters": self.get_params(deep=False),
            "facts": facts,
            "history": self.history_,
            "left_out": dict(getattr(self, "left_out_", {})),
            "privacy": self.privacy_ and self.privacy_.to_dict(),
        }
        if lost := getattr(self, "lost_", None):
            description["lost"] = dict(lost)
        if isinstance(self, HandlesMissing):
            description["missing"] = self.missing_values_.to_dict(self.least_published)
        values = {name: np.asarray(value) for name, value in arrays.items()}
        check_finite(values, self.may_be_missing, type(self).__name__)
        write_model(Path(folder), description, values, version("multicentre"))

    @classmethod
    def load(cls, folder: str | Path) -> Self:
        """Read a model that :meth:`save` wrote.

        The files are compared with their digest and their declarations first, which detects damage. A digest is not a
        signature: load models of senders whom you trust, and see `privacy_` of a loaded model as its file's statement.

        Raises
        ------
        IntegrityError
            A file is missing, cannot be read, was changed, is of a newer version, or holds a model of another kind.
        """
        folder = Path(folder)
        description, arrays = read_model(folder, version("multicentre"))
        kind = _named(description["estimator"], folder)
        if not issubclass(kind, cls):
            raise IntegrityError(f"the model is a {kind.__name__}, not a {cls.__name__}", where=str(folder))
        _check_parameters(kind, description, folder)
        check_finite(arrays, kind.may_be_missing, str(folder))
        try:
            return _restored(kind, description, arrays)
        except Exception as error:  # a model whose parts do not fit each other breaks wherever its class reads them
            message = error.what if isinstance(error, MulticentreError) else type(error).__name__
            reason = "".join(letter if letter.isprintable() else " " for letter in message)
            raise IntegrityError(
                f"the model's files must describe a consistent model; reading them failed ({reason})", where=str(folder)
            ) from None

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in super().__getstate__().items() if name != "_session"}

    @property
    def session(self) -> Session:
        """Session of the last fit, for further requests to the sites that took part in it."""
        session: Session | None = getattr(self, "_session", None)
        if session is None:
            raise NotFittedError("The sites of the fit are not available: fit the model in this process first.")
        return session


def find_estimator(name: str) -> type[FederatedEstimator]:
    """Return the estimator of an installed method.

    Raises
    ------
    ConfigurationError
        No installed method has this name; the message names the nearest.
    MissingExtra
        The method needs a library that is not installed.
    """
    if name not in METHODS:
        hint = nearest_name([name], METHODS).strip() or f"Installed methods: {', '.join(METHODS)}."
        raise ConfigurationError(f"method must be an installed method; got {name!r}", where="method", hint=hint)
    estimator: type[FederatedEstimator] = import_class(METHODS[name], name)
    return estimator


def _restored(kind: type[M], description: Mapping[str, Any], arrays: Arrays) -> M:
    """Return the model that checked files describe."""
    model = kind(**description["parameters"])
    model.history_ = description["history"]
    model.left_out_ = {str(site): str(reason) for site, reason in description["left_out"].items()}
    model.lost_ = {str(site): str(reason) for site, reason in description.get("lost", {}).items()}
    stated = description["privacy"]
    model.privacy_ = None if stated is None else Guarantee.stated_in_file(stated)
    if isinstance(model, HandlesMissing):
        model.missing_values_ = MissingValues.from_dict(description["missing"])
    _check_promise(model)
    model._restore(arrays, description["facts"])
    check_types(model)
    _state_results(model)
    return model


def _state_results(model: FederatedEstimator) -> None:
    """Make what a model states, so that facts which contradict each other fail when it is read, and not later."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for state in (model.summary, model.result_tables, model.answer, model.main_figure, model.__str__):
            with contextlib.suppress(MulticentreError):  # some models have no such result
                state()


def _check_promise(model: FederatedEstimator) -> None:
    """Refuse a promise of privacy that no fit with the model's parameters makes."""
    if model.privacy_ is None:
        return
    plan = model.privacy_plan()
    if plan is None:
        raise IntegrityError("a promise of privacy needs parameters with noise; the model's have none", where="privacy")
    planned = guarantee_of_plan(plan)
    # A patient at several sites pays more than the plan says; nobody pays less.
    if model.privacy_.delta != planned.delta or model.privacy_.epsilon < planned.epsilon * (1 - _ROUNDING):
        raise IntegrityError("the promise of privacy must be that of the parameters; it is stronger", where="privacy")


def _check_parameters(kind: type[FederatedEstimator], description: Mapping[str, Any], folder: Path) -> None:
    valid_names = inspect.signature(kind.__init__).parameters
    if unknown := [name for name in description["parameters"] if name not in valid_names]:
        here, there = version("multicentre"), description["version"]
        raise IntegrityError(
            f"the parameters of {kind.__name__} must be known to multicentre {here}; got {unknown[0][:40]!r}, "
            f"written by multicentre {there!r}",
            where=str(folder),
            hint="Install the version that wrote the model, or save it again with this one.",
        )


def _named(path: str, folder: Path) -> type[FederatedEstimator]:
    module, _, name = path.partition(":")
    if module.partition(".")[0] not in packages() or not all(part.isidentifier() for part in module.split(".")):
        raise IntegrityError("the estimator must be one of an installed method", where=str(folder))
    try:
        kind = getattr(importlib.import_module(module), name, None)
    except ImportError as error:
        raise IntegrityError(f"the model cannot be read ({type(error).__name__})", where=str(folder)) from None
    if not (isinstance(kind, type) and issubclass(kind, FederatedEstimator)) or kind.__module__ != module:
        raise IntegrityError("the model names no estimator", where=str(folder))
    return kind
