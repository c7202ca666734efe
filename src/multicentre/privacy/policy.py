"""Policy of a site: what its steward permits to leave, as a TOML file or in Python."""

from __future__ import annotations

import dataclasses
import difflib
import math
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Self, get_args

from multicentre.federation.engine import Protection
from multicentre.federation.errors import ConfigurationError, MulticentreError, RefusedByPolicy
from multicentre.federation.messages import Declaration, place
from multicentre.federation.steps import Step
from multicentre.privacy.providers import check_allowed

LEAST_EPSILON = 1e-6  # a smaller epsilon is a typing error; so is one above its inverse
Relations = Literal["none", "summed", "listed", "dense"]
RELATIONS: tuple[str, ...] = get_args(Relations)
ASK_STEWARD = "Ask the site's steward whether its policy can be changed, or leave the site out."
MASK_SUMS = "Mask the sums (secure_sum=True)."
_WHOLE = ("min_patients", "min_patients_in_total", "min_difference", "min_sites_in_sum", "colluding_sites")


@dataclass(frozen=True)
class Policy:
    """Terms under which one site releases answers.

    Parameters
    ----------
    min_patients : int, default 10
        A value leaves only if at least this many patients stand behind it, or none (a view that the site does not
        have). Noise replaces the minimum while all noised answers of the site together are within epsilon 3 at a delta
        of 1e-5.
    min_patients_in_total : int, default 0
        The coordinator's process reveals a sum over sites only if at least this many patients of all sites stand behind
        it, and a table of patients only if each of its cells is 0 or at least this number. 0 switches the check off. An
        unmasked sum needs as many patients at this site alone.
    min_difference : int, default 0
        Any two answers about patients, whatever the quantity or method, must be about the same cohort or about cohorts
        that differ by at least this many patients. Counts of missing entries and pseudonyms are compared with answers
        of the same kind only. 0 switches the memory off.
    max_parameters_per_patient : float, default 1/3
        Largest number of coefficients of a regression (Cox, logistic) per patient that it rests on: the site's own
        patients for an unmasked answer, those of all sites for a masked one. 0 switches the limit off.
    methods : list or tuple of str, optional
        Methods that may run at the site; None permits every installed one. An entry may name the distribution that
        must provide the method, with its accepted versions: ``"own-method @ own-distribution >= 1.2"``.
    columns : list or tuple of str, optional
        Columns that may be used; None permits all columns of the site's data.
    secure_sums_only : bool, default False
        Whether values computed from patients leave only as masked summands.
    exact_times : bool, default False
        Whether times of events may leave as they were recorded. Otherwise they leave on a grid that the sites share.
    relations : {"none", "summed", "listed", "dense"}, default "summed"
        What may leave about single patients and pairs of patients, under pseudonyms, if sites have different views of
        the same patients: nothing; masked sums over sites; a site's lists of each patient's nearest others; whole
        tables of one site, from which its rows can be computed up to a rotation. Each level includes those before it.
    min_sites_in_sum : int, default 2
        A masked sum needs at least this many sites, and each view and column in it as many sites that have it. A sum
        of two sites shows each the other's share.
    colluding_sites : int, default 0
        Number of other sites that may collude with the coordinator. Masks protect against them, and this site's share
        of a common noise is as large as if their shares were known.
    epsilon : float, optional
        Privacy budget: all releases of this data set, in all runs together, are (`epsilon`, `delta`)-differentially
        private for one patient (all records of a patient; neighbouring data sets differ by one patient). Without it,
        releases need no noise.
    delta : float, default 1e-5
        Well below one over the number of patients.
    account : str, optional
        File of the budget's spending, with a small file next to it (``.head``) by which a removal is detected. A
        relative path starts at the policy's file. By default the account is next to that file. Without a file of the
        policy, the budget lasts as long as the federation. One account is for one data set.
    cohorts : str, optional
        Folder of the cohorts that were answered for, used by `min_difference`; resolved like `account`.

    Examples
    --------
    >>> Policy(min_patients=20).min_patients
    20
    """

    min_patients: int = 10
    min_patients_in_total: int = 0
    min_difference: int = 0
    max_parameters_per_patient: float = 1 / 3
    methods: Sequence[str] | None = None
    columns: Sequence[str] | None = None
    secure_sums_only: bool = False
    exact_times: bool = False
    relations: Relations = "summed"
    min_sites_in_sum: int = 2
    colluding_sites: int = 0
    epsilon: float | None = None
    delta: float = 1e-5
    account: str | None = None
    cohorts: str | None = None

    def __post_init__(self) -> None:
        for name in _WHOLE:
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < 0:
                raise ConfigurationError(
                    f"{name} must be a whole number of at least 0; got {value!r}",
                    where=f"policy, {name}",
                    hint=f"Write, for example, {name} = 10.",
                )
        _check_switches(self)
        if not 0 <= _number(self.max_parameters_per_patient) < math.inf:
            raise ConfigurationError(
                f"max_parameters_per_patient must be a number of at least 0; got {self.max_parameters_per_patient!r}",
                where="policy, max_parameters_per_patient",
                hint="One third is usual; 0 switches the limit off.",
            )
        if self.relations not in RELATIONS:
            raise ConfigurationError(
                f"relations must be one of {', '.join(RELATIONS)}; got {self.relations!r}", where="policy, relations"
            )
        if self.epsilon is not None and not LEAST_EPSILON <= _number(self.epsilon) <= 1 / LEAST_EPSILON:
            raise ConfigurationError(
                f"epsilon must be a number above 0 and at most a million; got {self.epsilon!r}",
                where="policy, epsilon",
                hint="Values from 0.1 to 10 are usual; leave epsilon out for no budget.",
            )
        if not 0 < _number(self.delta) < 1:
            raise ConfigurationError(
                f"delta must be a number between 0 and 1; got {self.delta!r}",
                where="policy, delta",
                hint="Take one well below one over the number of patients, such as 1e-5.",
            )
        for name in ("account", "cohorts"):
            value = getattr(self, name)
            if value is not None and not (isinstance(value, str) and value):
                raise ConfigurationError(
                    f"{name} must be the name of a file or folder; got {value!r}", where=f"policy, {name}"
                )
        for name in ("methods", "columns"):
            object.__setattr__(self, name, _names(getattr(self, name), name))
        check_allowed(self.methods)

    @property
    def allowed_methods(self) -> tuple[str, ...] | None:
        """Entries of `methods`; None permits every installed method."""
        return None if self.methods is None else tuple(self.methods)

    def lacks(self, permission: str) -> str:
        """Return the term that the policy lacks for a permission; empty if it gives the permission.

        Parameters
        ----------
        permission : str
            Name of a switch, or ``relations=<level>``.

        Examples
        --------
        >>> Policy().lacks("relations=summed"), Policy().lacks("relations=listed"), Policy().lacks("exact_times")
        ('', 'relations = "listed"', 'exact_times = true')
        """
        name, _, level = permission.partition("=")
        if not level:
            return "" if getattr(self, name) is True else f"{name} = true"
        held = RELATIONS.index(self.relations) >= RELATIONS.index(level)
        return "" if held else f'{name} = "{level}"'

    @classmethod
    def from_mapping(cls, terms: Mapping[str, Any]) -> Self:
        """Create a policy from a mapping; the error for an unknown key names the closest known one."""
        field_names = [field.name for field in dataclasses.fields(cls)]
        for key in terms:
            if key not in field_names:
                raise unknown_key(key, field_names, "policy")
        values: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in terms.items()}
        return cls(**values)

    @classmethod
    def read(cls, path: str | Path) -> Self:
        """Read ``policy.toml``.

        Raises
        ------
        ConfigurationError
            The file is missing, is not TOML, or contains an unknown key or an invalid value.
        """
        try:
            terms = tomllib.loads(Path(path).read_text(encoding="utf-8"))
        except OSError as error:
            raise ConfigurationError("the policy cannot be read", where=str(path), hint=f"{error.strerror}.") from None
        except UnicodeDecodeError:
            raise ConfigurationError("the policy is not UTF-8 text", where=str(path)) from None
        except tomllib.TOMLDecodeError as error:
            raise ConfigurationError("the policy is not valid TOML", where=str(path), hint=f"{error}.") from None
        try:
            return cls.from_mapping(terms).relative_to(Path(path))
        except ConfigurationError as error:
            raise error.at(str(path)) from None

    def relative_to(self, file: Path) -> Self:
        """Return the policy with the paths of its account and cohorts resolved from the policy's file."""
        account = self.account or (f"{file.stem}.account.jsonl" if self.epsilon else None)
        cohorts = self.cohorts or (f"{file.stem}.cohorts" if self.min_difference else None)
        here = [name and str((file.parent / name).absolute()) for name in (account, cohorts)]
        return dataclasses.replace(self, account=here[0], cohorts=here[1])

    def of_site(self, site: str) -> Self:
        """Return a policy that all sites share, with a separate account and cohorts for this site."""
        paths = [name and _of_site(Path(name), site) for name in (self.account, self.cohorts)]
        return dataclasses.replace(self, account=paths[0], cohorts=paths[1])


@dataclass(frozen=True)
class Refusal:
    """Reason why a site refuses a call or an answer.

    Parameters
    ----------
    term : str
        Term of the policy, or field of the answer, that the reason is about; empty for the site as a whole.
    reason : str
    error : callable, default RefusedByPolicy
        Class of the error to raise.
    hint : str
    """

    term: str
    reason: str
    error: Callable[..., MulticentreError] = RefusedByPolicy
    hint: str = ASK_STEWARD


def needed_permission(step: Step[Any, Any, Any], declaration: Declaration, protection: Protection) -> str:
    """Return the permission that a field needs to leave; empty if it needs none.

    An unmasked sum over pairs of patients shows a site's whole table and needs the permission for one.
    """
    return "relations=dense" if _is_unmasked_relation(step, declaration, protection) else declaration.permission


def find_unpermitted(policy: Policy, step: Step[Any, Any, Any], protection: Protection) -> Refusal | None:
    """Return the refusal of a step with a field that needs a permission which the policy does not give."""
    for name, declaration in step.releases.declarations().items():
        permission = needed_permission(step, declaration, protection)
        if permission and (lacking := policy.lacks(permission)):
            hint = f"{MASK_SUMS} {ASK_STEWARD}" if _is_unmasked_relation(step, declaration, protection) else ASK_STEWARD
            reason = f"the site's policy permits this field only with {lacking}"
            return Refusal(place(step.releases, name), reason, hint=hint)
    return None


def _is_unmasked_relation(step: Step[Any, Any, Any], declaration: Declaration, protection: Protection) -> bool:
    return step.summed and protection == "unmasked" and declaration.permission == "relations=summed"


def loosest_of(policies: Iterable[Policy]) -> Policy:
    """Return a policy that permits whatever at least one of several policies permits.

    It has the smallest `min_patients`, every permission that some policy gives, and the `min_patients_in_total` that
    applies to all sites.

    Examples
    --------
    >>> loosest = loosest_of([Policy(min_patients=5), Policy(min_patients=20, min_patients_in_total=10)])
    >>> loosest.min_patients, loosest.min_patients_in_total
    (5, 10)
    """
    listed = list(policies)
    loosest = min(listed, key=lambda policy: policy.min_patients, default=Policy())
    return dataclasses.replace(
        loosest,
        min_patients_in_total=least_in_total(listed),
        exact_times=any(policy.exact_times for policy in listed),
        relations=max((policy.relations for policy in listed), key=RELATIONS.index, default=loosest.relations),
    )


def least_in_total(policies: Iterable[Policy]) -> int:
    """Return the largest `min_patients_in_total`, which applies to sums over all sites."""
    return max((policy.min_patients_in_total for policy in policies), default=0)


def _check_switches(policy: Policy) -> None:
    for name in ("secure_sums_only", "exact_times"):
        if not isinstance(getattr(policy, name), bool):
            raise ConfigurationError(
                f"{name} must be true or false; got {getattr(policy, name)!r}",
                where=f"policy, {name}",
                hint=f"Write {name} = true.",
            )


def _names(given: object, term: str) -> tuple[str, ...] | None:
    if given is None:
        return None
    if isinstance(given, list | tuple) and all(isinstance(entry, str) for entry in given):
        return tuple(given)
    what = f"{term} must be a list of names; got {type(given).__name__}"
    raise ConfigurationError(what, where=f"policy, {term}", hint='Write, for example, ["age", "sex"].')


def _of_site(shared: Path, site: str) -> str:
    return str(shared.with_name(f"{shared.stem}.{site}{shared.suffix}"))


def _number(value: object) -> float:
    return value if isinstance(value, int | float) and not isinstance(value, bool) else math.nan


def unknown_key(key: str, known: list[str], where: str) -> ConfigurationError:
    """Return the error for an unknown key; it names the closest known one."""
    near = difflib.get_close_matches(key, known, n=1)
    hint = f"Did you mean {near[0]!r}?" if near else f"Known keys: {', '.join(known)}."
    return ConfigurationError(f"the key {key!r} is not known", where=where, hint=hint)
