"""Policy of a site: permissions of its steward, as a TOML file or in Python."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Self, get_args

from multicentre.core.calls import Protection, suggest_masks
from multicentre.core.messages import Declaration, place
from multicentre.core.parsing import read_toml
from multicentre.core.steps import Step
from multicentre.errors import ConfigurationError, MulticentreError, RefusedByPolicy, nearest_name
from multicentre.privacy.allowed_methods import check_allowed

MIN_EPSILON = 1e-6  # a smaller epsilon, or one above its inverse, is a typing error
Relations = Literal["none", "summed", "listed", "dense"]
RELATIONS: tuple[str, ...] = get_args(Relations)
ASK_STEWARD = "Ask the site's steward whether its policy can be changed, or leave the site out."
# Default of `min_difference`: differences of four patients or fewer come near single rows.
MIN_DIFFERENCE = 5
_SITES_TO_HIDE = 3  # of a sum over two sites, each site can compute the other's share
_INTEGERS = ("min_patients", "min_patients_in_total", "min_difference", "min_sites_in_sum", "colluding_sites")


@dataclass(frozen=True)
class Policy:
    """Terms under which one site releases answers.

    Parameters
    ----------
    min_patients : int, default 10
        Smallest number of patients behind a released value, except for values without any patient (a view that the site
        does not have). Noise replaces the minimum while the combined noised answers of the site are within epsilon 3 at
        a delta of 1e-5.
    min_patients_in_total : int, default 0
        Smallest number of patients of all sites behind a sum that the coordinator's process reveals. Each cell of a
        table of patients must be 0 or at least this number. An unmasked sum requires this number of patients at this
        site. 0 disables the check.
    min_patients_in_share : int, optional
        Smallest number of patients of this site behind its share of a masked sum, in place of `min_patients`. It
        requires ``min_sites_in_sum`` of at least 3, and ``min_patients_in_total`` of at least `min_patients`, which
        then stands in for the site's own minimum. Answers of this site alone need `min_patients` all the same.
    min_difference : int, optional
        Smallest difference, in patients, between the cohorts of any two answers about patients, unless the cohorts are
        the same. Counts of missing entries and pseudonyms are compared only with answers of the same kind. 0 disables
        the check. By default 5 if every record has a patient id, and no check otherwise; a number refuses records
        without ids. A real site compares answers over time; in one process the memory lasts as long as the federation
        unless `cohorts` names a folder.
    max_parameters_per_patient : float, default 1/3
        Largest number of coefficients of a regression (Cox, logistic) per patient. The patients are those of the site
        for an unmasked answer, and those of all sites for a masked one. 0 disables the limit.
    methods : list or tuple of str, optional
        Methods that may run at the site; None permits every installed method. An entry may name the distribution that
        must provide the method, with its accepted versions: ``"own-method @ own-distribution >= 1.2"``.
    columns : list or tuple of str, optional
        Columns that may be used; None permits all columns of the site's data.
    secure_sums_only : bool, default False
        If True, values computed from patients leave only as masked summands.
    exact_times : bool, default False
        If True, recorded times of events may leave. Otherwise they leave on a common grid of the sites.
    relations : {"none", "summed", "listed", "dense"}, default "summed"
        Permitted values about single patients and pairs of patients, under pseudonyms, if sites have different views of
        the same patients. "none": no values. "summed": values per patient or pair as masked sums over sites only;
        unmasked pseudonyms and seals of the alignment, and distances of views to two digits. "listed": in addition, a
        site's list of the nearest neighbours of each patient. "dense": in addition, unmasked summands, which are whole
        tables of a site, from which its rows can be computed up to a rotation. Each level includes the previous ones.
    min_sites_in_sum : int, default 2
        Smallest number of sites in a masked sum, and of sites with each of its views and columns. A sum of two sites
        reveals to each site the other's share.
    colluding_sites : int, default 0
        Number of other sites that may collude with the coordinator. Masks protect against them, and this site's share
        of a common noise is increased to be sufficient without their shares.
    epsilon : float, optional
        Privacy budget: the combined releases of this data set, in all runs, are (`epsilon`, `delta`)-differentially
        private for one patient (all records of a patient; neighbouring data sets differ by one patient). Without it,
        releases need no noise.
    delta : float, default 1e-5
        Delta of the privacy budget; choose a value well below one over the number of patients.
    account : str, optional
        File with the costs charged to the budget. A small file next to it (``.head``) detects removals. A relative path
        starts at the policy's file. By default the account is next to that file. Without a policy file, the budget
        lasts as long as the federation. An account is for one data set.
    cohorts : str, optional
        Folder with the cohorts of earlier answers, for `min_difference`; resolved like `account`.

    Examples
    --------
    >>> Policy(min_patients=20).min_patients
    20
    """

    min_patients: int = 10
    min_patients_in_total: int = 0
    min_patients_in_share: int | None = None
    min_difference: int | None = None
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
        _check_integers(self)
        _check_switches(self)
        _check_share(self)
        if not 0 <= _number(self.max_parameters_per_patient) < math.inf:
            raise ConfigurationError(
                f"max_parameters_per_patient must be a number of at least 0; got {self.max_parameters_per_patient!r}",
                where="policy, max_parameters_per_patient",
                hint="The default is 1/3; 0 disables the limit.",
            )
        if self.relations not in RELATIONS:
            raise ConfigurationError(
                f"relations must be one of {', '.join(RELATIONS)}; got {self.relations!r}", where="policy, relations"
            )
        if self.epsilon is not None and not MIN_EPSILON <= _number(self.epsilon) <= 1 / MIN_EPSILON:
            raise ConfigurationError(
                f"epsilon must be a number from {MIN_EPSILON:g} to {1 / MIN_EPSILON:g}; got {self.epsilon!r}",
                where="policy, epsilon",
                hint="Values from 0.1 to 10 are usual. Leave epsilon out for no budget.",
            )
        if not 0 < _number(self.delta) < 1:
            raise ConfigurationError(
                f"delta must be a number between 0 and 1; got {self.delta!r}",
                where="policy, delta",
                hint="Choose a value well below one over the number of patients, such as 1e-5.",
            )
        for name in ("account", "cohorts"):
            value = getattr(self, name)
            if value is not None and not (isinstance(value, str) and value):
                raise ConfigurationError(
                    f"{name} must be the path of a file or folder; got {value!r}", where=f"policy, {name}"
                )
        for name in ("methods", "columns"):
            object.__setattr__(self, name, _names(getattr(self, name), name))
        check_allowed(self.methods)

    def difference_of(self, *, have_ids: bool) -> int:
        """Return the smallest difference between cohorts of records with ids, or without.

        Examples
        --------
        >>> Policy().difference_of(have_ids=True), Policy().difference_of(have_ids=False)
        (5, 0)
        """
        return (MIN_DIFFERENCE if have_ids else 0) if self.min_difference is None else self.min_difference

    @property
    def least_in_share(self) -> int:
        """Smallest number of patients of the site behind its share of a masked sum whose patients are counted."""
        return self.min_patients if self.min_patients_in_share is None else self.min_patients_in_share

    @property
    def allowed_methods(self) -> tuple[str, ...] | None:
        """Entries of `methods`; None if every installed method is permitted."""
        return None if self.methods is None else tuple(self.methods)

    def lacks(self, permission: str) -> str:
        """Return the term that is missing for a permission; empty if the policy has the permission.

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
        is_permitted = RELATIONS.index(self.relations) >= RELATIONS.index(level)
        return "" if is_permitted else f'{name} = "{level}"'

    @classmethod
    def from_mapping(cls, terms: Mapping[str, Any]) -> Self:
        """Create a policy from a mapping; the error for an unknown key names the closest valid key."""
        if not terms:  # an emptied file must not become the default policy
            raise ConfigurationError("the policy must state at least one term; got none", where="policy")
        field_names = [field.name for field in dataclasses.fields(cls)]
        if unknown := [key for key in terms if key not in field_names]:
            raise unknown_key(unknown, field_names, "policy")
        return cls(**terms)

    @classmethod
    def read(cls, path: str | Path) -> Self:
        """Read ``policy.toml``.

        Raises
        ------
        ConfigurationError
            The file is missing, is not TOML, or contains an unknown key or an invalid value.
        """
        terms = read_toml(Path(path), "the policy")
        try:
            return cls.from_mapping(terms).relative_to(Path(path))
        except ConfigurationError as error:
            raise error.at(str(path)) from None

    def relative_to(self, file: Path) -> Self:
        """Return the policy with the paths of its account and cohorts resolved relative to the policy's file."""
        account = self.account or (f"{file.stem}.account.jsonl" if self.epsilon else None)
        cohorts = self.cohorts or (f"{file.stem}.cohorts" if self.min_difference else None)
        here = [name and str((file.parent / name).absolute()) for name in (account, cohorts)]
        return dataclasses.replace(self, account=here[0], cohorts=here[1])

    def remembering(self, file: Path) -> Self:
        """Return the policy of a real site, which stores the cohorts of its answers next to the policy's file."""
        if self.cohorts is not None or self.min_difference == 0:
            return self
        return dataclasses.replace(self, cohorts=str((file.parent / f"{file.stem}.cohorts").absolute()))

    def of_site(self, site: str) -> Self:
        """Return a common policy of all sites, with a separate account and cohorts for this site."""
        paths = [name and _of_site(Path(name), site) for name in (self.account, self.cohorts)]
        return dataclasses.replace(self, account=paths[0], cohorts=paths[1])


@dataclass(frozen=True)
class Refusal:
    """Reason for the refusal of a call or an answer.

    Parameters
    ----------
    term : str
        Term of the policy, or field of the answer, that the reason concerns; empty for the site as a whole.
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
    """Return the permission that the release of a field requires; empty if it requires none.

    An unmasked sum over pairs of patients discloses a site's whole table and requires the permission for tables.
    """
    return "relations=dense" if _is_unmasked_relation(step, declaration, protection) else declaration.permission


def find_unpermitted(policy: Policy, step: Step[Any, Any, Any], protection: Protection, n_sites: int) -> Refusal | None:
    """Return the refusal of a step with a field whose required permission the policy does not have."""
    for name, declaration in step.releases.declarations().items():
        permission = needed_permission(step, declaration, protection)
        if permission and (lacking := policy.lacks(permission)):
            n_summed = n_sites if _is_unmasked_relation(step, declaration, protection) else 0
            hint = suggest_masks(ASK_STEWARD, protection=protection, n_sites=n_summed)
            reason = f"the site's policy must have {lacking} for this field; got a policy without it"
            return Refusal(place(step.releases, name), reason, hint=hint)
    return None


def _is_unmasked_relation(step: Step[Any, Any, Any], declaration: Declaration, protection: Protection) -> bool:
    return step.summed and protection == "unmasked" and declaration.permission == "relations=summed"


def loosest_of(policies: Iterable[Policy]) -> Policy:
    """Return a policy with all permissions of several policies.

    It has the smallest `min_patients`, every permission that at least one policy has, and the `min_patients_in_total`
    that applies to all sites.

    Examples
    --------
    >>> loosest = loosest_of([Policy(min_patients=5), Policy(min_patients=20, min_patients_in_total=10)])
    >>> loosest.min_patients, loosest.min_patients_in_total
    (5, 10)
    """
    all_policies = list(policies)
    loosest = min(all_policies, key=lambda policy: policy.min_patients, default=Policy())
    return dataclasses.replace(
        loosest,
        min_difference=min((policy.difference_of(have_ids=True) for policy in all_policies), default=MIN_DIFFERENCE),
        min_patients_in_total=least_in_total(all_policies),
        exact_times=any(policy.exact_times for policy in all_policies),
        relations=max((policy.relations for policy in all_policies), key=RELATIONS.index, default=loosest.relations),
    )


def least_in_total(policies: Iterable[Policy]) -> int:
    """Return the largest `min_patients_in_total`, which applies to sums over all sites."""
    return max((policy.min_patients_in_total for policy in policies), default=0)


def _check_integers(policy: Policy) -> None:
    for name in _INTEGERS:
        value = policy.difference_of(have_ids=True) if name == "min_difference" else getattr(policy, name)
        if not isinstance(value, int) or isinstance(value, bool) or value < 0:
            raise ConfigurationError(
                f"{name} must be an integer of at least 0; got {value!r}",
                where=f"policy, {name}",
                hint=f"Example: {name} = 10.",
            )


def _check_share(policy: Policy) -> None:
    """Check that a smaller share is permitted only where a total over other sites' patients hides it."""
    share: object = policy.min_patients_in_share
    if share is None:
        return
    if not isinstance(share, int) or isinstance(share, bool) or not 0 < share <= policy.min_patients:
        raise ConfigurationError(
            f"min_patients_in_share must be an integer from 1 to min_patients, {policy.min_patients}; got {share!r}",
            where="policy, min_patients_in_share",
            hint="Leave it out where the site has enough patients.",
        )
    if policy.min_sites_in_sum < _SITES_TO_HIDE or policy.min_patients_in_total < policy.min_patients:
        raise ConfigurationError(
            f"min_patients_in_share must go with min_sites_in_sum of at least {_SITES_TO_HIDE} and "
            f"min_patients_in_total of at least min_patients, {policy.min_patients}; got {policy.min_sites_in_sum} "
            f"and {policy.min_patients_in_total}",
            where="policy, min_patients_in_share",
            hint="The total over the other sites takes the place of this site's minimum.",
        )


def _check_switches(policy: Policy) -> None:
    for name in ("secure_sums_only", "exact_times"):
        if not isinstance(getattr(policy, name), bool):
            raise ConfigurationError(
                f"{name} must be true or false; got {getattr(policy, name)!r}",
                where=f"policy, {name}",
                hint=f"Example: {name} = true.",
            )


def _names(entries: object, term: str) -> tuple[str, ...] | None:
    if entries is None:
        return None
    if isinstance(entries, list | tuple) and all(isinstance(entry, str) for entry in entries):
        return tuple(entries)
    what = f"{term} must be a list of names; got {type(entries).__name__}"
    raise ConfigurationError(what, where=f"policy, {term}", hint='Example: ["age", "sex"].')


def _of_site(shared: Path, site: str) -> str:
    return str(shared.with_name(f"{shared.stem}.{site}{shared.suffix}"))


def _number(value: object) -> float:
    return value if isinstance(value, int | float) and not isinstance(value, bool) else math.nan


def unknown_key(key: str | Sequence[str], valid_keys: list[str], where: str) -> ConfigurationError:
    """Return the error for an unknown key or several; its hint names the closest valid keys."""
    keys = [key] if isinstance(key, str) else key
    hint = nearest_name(keys, valid_keys).strip() or f"Valid keys: {', '.join(valid_keys)}."
    subject = f"the key {keys[0]!r} is" if len(keys) == 1 else f"the keys {', '.join(map(repr, keys))} are"
    return ConfigurationError(f"{subject} unknown", where=where, hint=hint)


# Policy that the folder of a new site states.
NEW_SITE = Policy(min_difference=MIN_DIFFERENCE, min_sites_in_sum=3)

# Policy of a comparison in a simulation, whose rows one person holds: no rule protects them from that person.
UNLIMITED = Policy(
    min_patients=1, min_sites_in_sum=1, max_parameters_per_patient=0, exact_times=True, relations="dense"
)


def simulated_policy(n_sites: int) -> Policy:
    """Return the policy of simulated sites that name none: that of a new site, as far as the data permit.

    Cohorts of records without ids cannot be compared, and a sum over two sites cannot be over three.

    Examples
    --------
    >>> simulated_policy(3) == dataclasses.replace(NEW_SITE, min_difference=None), simulated_policy(2).min_sites_in_sum
    (True, 2)
    """
    n_in_sum = min(NEW_SITE.min_sites_in_sum, max(n_sites, 2))
    return dataclasses.replace(NEW_SITE, min_difference=None, min_sites_in_sum=n_in_sum)
