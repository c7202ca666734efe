"""Rounds of class boosting: AdaBoost.F, DistBoost.F and PreWeak.F.

Before the first round:

1. Each site returns the names of its columns and classes. Missing entries are handled as the fit requires.
2. Each site returns its number of patients, and counts and sums of its columns. The sums over sites give the means.
3. The coordinator sends the means, and each site returns sums of squared deviations from them.
4. The coordinator sends the agreement: columns, classes, number of patients, means and standard deviations. Each site
   gives all of its patients the same weight.

One round consists of:

1. The coordinator sends the scale of the weights and requests a tree.
2. Each site grows a tree on its weighted patients and returns it, or none if it has too few patients.
3. The coordinator sends the trees of all sites to every site.
4. Each site returns, for every tree, the sum of the weights of the patients that it misclassifies, and the sum of all
   weights. For DistBoost.F, the majority vote of all trees takes the place of the single trees.
5. The coordinator selects the hypothesis with the smallest error and sends its index and its vote.
6. Each site reweighs its patients and returns the sum of their weights.

For PreWeak.F, steps 1 and 2 take place before the first round: each site boosts alone, with several requests, and then
resets its weights. All their trees are sent in the first round only.

The rounds stop after ``n_estimators`` rounds, when the best hypothesis is no better than a guess, when it makes no
error, or when there is no hypothesis.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from multicentre.core.messages import Nothing
from multicentre.core.rounds import History
from multicentre.core.session import Session
from multicentre.data.missing.values import Missing, MissingValues, handle_missing
from multicentre.data.schema import check_columns
from multicentre.errors import DataError, MessageError, SchemaMismatch
from multicentre.survival.agreement.messages import About
from multicentre.survival.agreement.sketch import rounded
from multicentre.survival.surv_boost.maths import NO_HYPOTHESIS, Rule, Verdict, decide
from multicentre_papers.baselines.adaboost_f import messages
from multicentre_papers.baselines.adaboost_f.site import ClassSite
from multicentre_papers.baselines.adaboost_f.trees import ClassTrees

Floats = NDArray[np.float64]
COMMITTEE = "committee of all sites"


@dataclass(frozen=True)
class Plan:
    """Parameters of the rounds."""

    candidates: str
    n_estimators: int
    max_depth: int
    min_samples_leaf: int
    rate: float
    seed: int


class Offer(NamedTuple):
    """Trees of a round, their origins, and the sites without a valid tree."""

    trees: ClassTrees
    names: tuple[str, ...]
    dropped: tuple[str, ...]


def agree(session: Session, missing: Missing) -> tuple[messages.Prepared, MissingValues]:
    """Agree on columns, classes and the columns' scale; every site stores the agreement.

    Parameters
    ----------
    session : Session
    missing : {"mean", "complete", "indicator"}
        Handling of missing entries.

    Raises
    ------
    SchemaMismatch
        Sites have other columns or classes, or another order.
    """
    described = session.once("described", messages.Described, lambda: _describe(session))
    gaps = handle_missing(session, ClassSite, described.columns, described.levels, missing)
    columns = (*described.columns, *gaps.indicators)
    return session.once(
        "agreed", messages.Prepared, lambda: _settle(session, replace(described, columns=columns))
    ), gaps


def boost(session: Session, plan: Plan, agreed: messages.Prepared) -> tuple[messages.Ensemble, History]:
    """Run the rounds.

    Raises
    ------
    DataError
        No site could grow a tree.
    """
    rule = Rule.of_classes(len(agreed.classes), plan.rate)
    pool = session.once("pool", messages.Ensemble, lambda: _gather_pool(session, plan, agreed))
    rounds = session.rounds(plan.n_estimators, messages.Ensemble, lambda: _start(session, plan, agreed, pool))
    fixed = Offer(_trees_of(pool), pool.names, ())
    for number in rounds:
        before = rounds.state
        offer = fixed if plan.candidates == "pool" else _ask_sites(session, plan, agreed, before.log_total, number)
        verdict = _judge(session, plan, offer, before, rule, number)
        after = replace(before, dropped=(*before.dropped, *offer.dropped), stopped=verdict.stop)
        rounds.state = _join(session, after, offer, verdict, plan) if verdict.is_selected else after
        rounds.record(error=verdict.error, vote=verdict.vote)
        if verdict.stop:
            rounds.stop()
    if not len(rounds.state.votes):
        raise DataError(
            rounds.state.stopped or NO_HYPOTHESIS,
            where="; ".join(rounds.state.dropped[:5]) or "sites",
            hint="A leaf needs 15 patients or the policy's minimum, whichever is larger. Combine small sites.",
        )
    return rounds.state, rounds.history


def _describe(session: Session) -> messages.Described:
    described = session.ask(ClassSite.describe, Nothing())
    (first, answer), *others = described.items()
    classes = max((one.classes for one in described.values()), key=len)
    for site, other in others:
        check_columns(f"site {site}", other, first, answer)
    for site, other in described.items():
        if other.classes != classes[: len(other.classes)]:
            raise SchemaMismatch(
                "the classes differ from another site's",
                where=f"site {site}",
                hint="Declare the same classes everywhere.",
            )
    return replace(answer, classes=classes)


def _settle(session: Session, described: messages.Described) -> messages.Prepared:
    sizes = session.sum(ClassSite.sum_sizes, Nothing())
    present = np.maximum(sizes.present, 1.0)
    centre = sizes.total / present
    spread = np.sqrt(session.sum(ClassSite.sum_squares, About(centre)).squares / present)
    spread[spread <= 1e-9 * (1.0 + np.abs(centre))] = 1.0
    scale = rounded(centre, spread), rounded(spread, spread)
    agreed = messages.Prepared(described.columns, described.classes, sizes.n_patients, *scale, levels=described.levels)
    session.ask(ClassSite.agree, agreed)
    return agreed


def _nothing(dropped: tuple[str, ...] = ()) -> messages.Ensemble:
    trees = {name: getattr(ClassTrees.none(), name) for name in ClassTrees.declarations()}
    none = np.zeros(0)
    return messages.Ensemble(
        **trees,
        sizes=np.zeros(0, dtype=np.int64),
        votes=none,
        errors=none,
        names=(),
        dropped=dropped,
        log_total=0.0,
        stopped="",
    )


def _trees_of(ensemble: messages.Ensemble) -> ClassTrees:
    return ClassTrees(*(getattr(ensemble, name) for name in ClassTrees.declarations()))


def _gather_pool(session: Session, plan: Plan, agreed: messages.Prepared) -> messages.Ensemble:
    """Collect the trees of every site's local boosting; empty unless the rounds select from a pool."""
    pool = _nothing()
    if plan.candidates != "pool":
        return pool
    for number in range(1, -(-plan.n_estimators // len(session)) + 1):
        offer = _ask_sites(session, plan, agreed, 0.0, number, alone=True)
        joined = ClassTrees.joined([_trees_of(pool), offer.trees])
        trees = {name: getattr(joined, name) for name in ClassTrees.declarations()}
        pool = replace(pool, **trees, names=(*pool.names, *offer.names), dropped=(*pool.dropped, *offer.dropped))
    return pool


def _start(session: Session, plan: Plan, agreed: messages.Prepared, pool: messages.Ensemble) -> messages.Ensemble:
    if plan.candidates == "pool":
        # Reset the weights, which local boosting has changed.
        session.ask(ClassSite.agree, agreed)
    return _nothing(pool.dropped)


def _ask_sites(
    session: Session, plan: Plan, agreed: messages.Prepared, log_total: float, number: int, *, alone: bool = False
) -> Offer:
    request = messages.FitTree(log_total, plan.seed, number, plan.max_depth, plan.min_samples_leaf, alone, plan.rate)
    answers = session.ask(ClassSite.fit_tree, request)
    valid = {site: tree for site, tree in answers.items() if _is_valid(tree, agreed)}
    dropped = tuple(f"{site}, round {number}" for site in answers if site not in valid)
    return Offer(ClassTrees.joined(list(valid.values())), tuple(valid), dropped)


def _is_valid(tree: ClassTrees, agreed: messages.Prepared) -> bool:
    try:
        return tree.valid(len(agreed.columns), len(agreed.classes)).n_estimators == 1
    except MessageError:
        return False


def _judge(session: Session, plan: Plan, offer: Offer, before: messages.Ensemble, rule: Rule, number: int) -> Verdict:
    """Send the trees to all sites, sum their errors and select one; a pool is sent in the first round only."""
    is_first = not len(before.votes)
    if not offer.trees.n_estimators:
        return decide(np.zeros(0), np.zeros(0), 1.0, rule, is_first=is_first)
    new_trees = offer.trees if plan.candidates != "pool" or number == 1 else ClassTrees.none()
    trees = {name: getattr(new_trees, name) for name in ClassTrees.declarations()}
    request = messages.Hypotheses(**trees, committee=plan.candidates == "committee", log_total=before.log_total)
    errors = session.sum(ClassSite.judge, request)
    return decide(errors.errors, np.ones(len(errors.errors)), errors.total, rule, is_first=is_first)


def _join(session: Session, before: messages.Ensemble, offer: Offer, verdict: Verdict, plan: Plan) -> messages.Ensemble:
    """Add the selected hypothesis to the ensemble and request that the sites reweigh their patients."""
    chosen = messages.Chosen(before.log_total, verdict.index, verdict.vote)
    total = session.sum(ClassSite.reweigh, chosen).total
    committee = plan.candidates == "committee"
    taken = offer.trees if committee else offer.trees.take(verdict.index, verdict.index + 1)
    joined = ClassTrees.joined([_trees_of(before), taken])
    return replace(
        before,
        **{name: getattr(joined, name) for name in ClassTrees.declarations()},
        sizes=np.append(before.sizes, taken.n_estimators),
        votes=np.append(before.votes, verdict.vote),
        errors=np.append(before.errors, verdict.error),
        names=(*before.names, COMMITTEE if committee else offer.names[verdict.index]),
        log_total=float(np.log(total)) if total > 0 else 0.0,
    )
