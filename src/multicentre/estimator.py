"""What every federated estimator has in common: scikit-learn's habits, with a federation where the data would be."""

from __future__ import annotations

import importlib
import io
import json
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal, Self
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.exceptions import NotFittedError

from multicentre.exhibits import Exhibit
from multicentre.federation.coordinator import Federation
from multicentre.federation.errors import ConfigurationError, IntegrityError, MessageError
from multicentre.federation.noise import Plan
from multicentre.federation.rounds import History
from multicentre.federation.steps import SitePart
from multicentre.federation.storage import write_atomically
from multicentre.missing import HandlesMissing, MissingValues
from multicentre.privacy.card import DisclosureCard, disclosure_card
from multicentre.privacy.guarantee import Guarantee
from multicentre.privacy.statement import guarantee_of

Arrays = Mapping[str, NDArray[Any]]
_UNREADABLE = (OSError, ValueError, LookupError, TypeError, EOFError, BadZipFile, ImportError, RecursionError)


@dataclass(frozen=True)
class Figure:
    """A figure by which fits are compared.

    Parameters
    ----------
    label : str
        Its name for people.
    better : {"lower", "higher"}
    unit : str
    meaning : str
        What it measures, in one sentence.
    """

    label: str
    better: Literal["lower", "higher"]
    unit: str
    meaning: str


class FederatedEstimator(BaseEstimator, ABC):  # type: ignore[misc]  # scikit-learn ships no types
    """Base of the package's estimators.

    A subclass names its site part, writes its rounds in :meth:`_fit`, and says in :meth:`_state` what a fitted model
    consists of.

    Attributes
    ----------
    history_ : list of dict
        One entry a round, after a fit.
    left_out_ : dict of str to str
        Sites that the fit was made without because they refused (``refusing_sites="leave_out"``), and why.
    privacy_ : Guarantee or None
        What the fit promises a patient; None without differential privacy.
    """

    site_part: ClassVar[type[SitePart]]
    aligned_by: ClassVar[type[SitePart] | None] = None
    """What aligns the sites' records before a fit, of methods whose sites hold different views of the same patients."""
    figures: ClassVar[Mapping[str, Figure]] = {}
    history_: History
    left_out_: Mapping[str, str]
    privacy_: Guarantee | None

    def fit(self, federation: Federation, y: None = None) -> Self:
        """Fit the model over the sites of a federation.

        Parameters
        ----------
        federation : Federation
            Sites whose data are of the type that the method works on.
        y : None
            Ignored; there for scikit-learn's habits.

        Returns
        -------
        self
        """
        if not isinstance(federation, Federation):
            raise ConfigurationError(
                f"fit takes a federation, {type(federation).__name__} was given",
                where=type(self).__name__,
                mend="Make one with multicentre.Federation.in_process({site: data}).",
            )
        parameters = json.dumps(self.get_params(deep=False), sort_keys=True, default=str)
        is_aligned = self.aligned_by is not None  # with all sites, so that none can be left out any more
        for attempt in federation.attempts(
            self.site_part, parameters, plan=self.privacy_plan(), restarts=not is_aligned
        ):
            with attempt as self._federation:
                self._fit(self._federation)
        self.left_out_ = self._federation.left_out
        self.privacy_ = guarantee_of(self._federation)
        return self

    def privacy_plan(self) -> Plan | None:
        """Return the noise of every release of a fit with these parameters; None without differential privacy."""
        return None

    def asked_steps(self) -> frozenset[str]:
        """Return the names of the steps that a fit with these parameters may ask of a site."""
        return frozenset(self.site_part.steps())

    @abstractmethod
    def _fit(self, federation: Federation) -> None:
        """Run the rounds and set the fitted attributes."""

    @abstractmethod
    def _state(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the fitted model as arrays and plain facts."""

    @abstractmethod
    def _restore(self, arrays: Arrays, facts: Mapping[str, Any]) -> None:
        """Set the fitted attributes from what :meth:`_state` returned."""

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

    def exhibits(self, sites: Mapping[str, Any], labels: Mapping[str, Sequence[str]]) -> list[Exhibit]:
        """Return figures and tables of the fit, on data that the caller holds (a simulation).

        Parameters
        ----------
        sites : mapping of str to data
            Data by site.
        labels : mapping of str to sequence of str
            Group of every patient by site; empty where there are none.
        """
        return []

    @classmethod
    def disclosure_card(cls) -> DisclosureCard:
        """Return what the method lets out of a site, with the alignment of records where it needs one."""
        card = disclosure_card(cls.site_part)
        return card if cls.aligned_by is None else disclosure_card(cls.aligned_by).joined(card)

    def save(self, folder: str | Path) -> None:
        """Write the fitted model as ``model.npz`` and ``model.json``, readable without this package."""
        arrays, facts = self._state()
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        description = {
            "estimator": f"{type(self).__module__}:{type(self).__qualname__}",
            "parameters": self.get_params(deep=False),
            "facts": facts,
            "history": self.history_,
            "left_out": dict(getattr(self, "left_out_", {})),
            "privacy": self.privacy_ and asdict(self.privacy_),
        }
        if isinstance(self, HandlesMissing):
            description["missing"] = self.missing_values_.to_dict()
        packed = io.BytesIO()
        np.savez(packed, **arrays)
        write_atomically(folder / "model.npz", packed.getvalue())
        write_atomically(
            folder / "model.json", json.dumps(description, indent=2, ensure_ascii=False, default=_plain).encode()
        )

    @classmethod
    def load(cls, folder: str | Path) -> Self:
        """Read a model that :meth:`save` wrote.

        Raises
        ------
        IntegrityError
            A file is missing or cannot be read, or holds a model of another kind.
        """
        folder = Path(folder)
        try:
            description = json.loads((folder / "model.json").read_text(encoding="utf-8"))
            with (folder / "model.npz").open("rb") as file, np.load(file, allow_pickle=False) as members:
                arrays = dict(members.items())
            kind = _named(str(description["estimator"]), folder)
        except _UNREADABLE as error:
            raise IntegrityError(f"the model cannot be read ({type(error).__name__})", where=str(folder)) from None
        if not issubclass(kind, cls):
            raise IntegrityError(f"the model is a {kind.__name__}, not a {cls.__name__}", where=str(folder))
        model = kind(**description["parameters"])
        model.history_ = description["history"]
        model.left_out_ = description.get("left_out", {})
        model.privacy_ = description.get("privacy") and Guarantee(**description["privacy"])
        try:
            if isinstance(model, HandlesMissing):
                model.missing_values_ = MissingValues.from_dict(description["missing"])
            model._restore(arrays, description["facts"])
        except (*_UNREADABLE, MessageError) as error:
            what = f"the model is not what it says ({type(error).__name__})"
            raise IntegrityError(what, where=str(folder)) from None
        return model

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in super().__getstate__().items() if name != "_federation"}

    @property
    def federation(self) -> Federation:
        """The handle of the last fit, for questions to the sites that took part in it."""
        handle: Federation | None = getattr(self, "_federation", None)
        if handle is None:
            raise NotFittedError("The sites of the fit are not at hand: fit the model in this process first.")
        return handle


def _plain(value: Any) -> Any:
    """Return a number or an array of numpy's as JSON knows it."""
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    raise TypeError(f"{type(value).__name__} is no plain value")


def _named(path: str, folder: Path) -> type[Any]:
    module, _, name = path.partition(":")
    if module.partition(".")[0] != "multicentre":
        raise IntegrityError("the model is not one of this package", where=str(folder))
    kind = getattr(importlib.import_module(module), name, None)
    if not (isinstance(kind, type) and issubclass(kind, FederatedEstimator)):
        raise IntegrityError("the model names no estimator", where=str(folder))
    return kind
