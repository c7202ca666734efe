"""Scores of factorisations and of models of an outcome, against plain arithmetic on dense arrays."""

import dataclasses

import numpy as np
import pytest
from sklearn import metrics

import multicentre as mc
from multicentre.core.messages import Nothing
from multicentre.core.wire import encode
from multicentre.errors import DataError, DisclosureRefused, MessageError, SchemaMismatch
from multicentre.phenotyping.kernels.mttkrp import SparseTensor
from multicentre.phenotyping.outcome import PhenotypeOutcome
from multicentre.validation.scoring.events import TERMS, EventPart, factors_of
from multicentre.validation.scoring.judging import FIXED, Scored
from multicentre.validation.scoring.outcomes import outcome_law
from multicentre.validation.scoring.scores import score
from multicentre_papers import baselines
from support.event_sites import simulate_events
from support.method_cases import drawn_phenotypes

MODELS = {
    "stat": lambda: mc.phenotyping.DPFact(3, tol=0.05),
    "poisson": lambda: mc.phenotyping.DPFact(3, solver="poisson", tol=0.05),
    "free": lambda: mc.phenotyping.DPFact(2, nonnegative=False, tol=0.05),
    "capped": lambda: baselines.TRIP(2, cap=2, max_iter=40, tol=0.05),
}


def sites():
    return simulate_events().sites(3)


@pytest.fixture(scope="module", params=MODELS)
def model(request):
    return MODELS[request.param]().fit(mc.Federation.in_process(sites()))


def part_of(model, data, site="lyon"):
    part = EventPart(site, data)
    told = factors_of(model)
    part.judge(Scored("Factors", np.frombuffer(encode(told), dtype=np.uint8)))
    return part


def all_sums(part):
    """Return the fields of both sums over hidden cells."""
    answers = part.sum_entries(Nothing()), part.sum_deviances(Nothing())
    return {name: getattr(answer, name) for answer in answers for name in type(answer).declarations()}


def dense(tensor):
    counts = np.zeros(tensor.shape)
    counts[tuple(tensor.coordinates.T)] = tensor.counts
    return counts


@pytest.mark.slow
def test_sums_are_those_of_hidden_cells_predicted_from_the_others(model):
    data = next(iter(sites().values()))
    part = part_of(model, data)
    sums = all_sums(part)
    fifths, own = part.hidden
    counts = dense(data.align(model.codes_))
    first, second = (model.factors_[mode] for mode in model.codes_)
    expected = dict.fromkeys(("errors", "predicted", "cross", "counts", "squares", "cells", "entries"), 0.0)
    for row, observed in enumerate(counts):
        hides = fifths == own[row]
        kept = np.argwhere(observed[~hides] > 0)
        shown = SparseTensor(
            np.column_stack([np.zeros(len(kept), dtype=int), kept]),
            observed[~hides][tuple(kept.T)],
            (1, int((~hides).sum()), observed.shape[1]),
        )
        alone = part.model.fit(shown, [first[~hides], second])[0]
        said = np.einsum("r,jr,kr->jk", alone, first[hides], second)
        target = observed[hides]
        expected["errors"] += ((target - said) ** 2).sum()
        expected["predicted"] += said.sum()
        expected["cross"] += (target * np.log(np.maximum(said, 1e-10)))[target > 0].sum()
        expected["counts"] += target.sum()
        expected["squares"] += (target**2).sum()
        expected["cells"] += target.size
        expected["entries"] += (target > 0).sum()
    for name, value in expected.items():
        got = sums[name] / (1 if name in ("cells", "entries") else FIXED)
        assert got == pytest.approx(value, rel=1e-5, abs=1e-4), name


@pytest.mark.slow
def test_scores_follow_from_the_sums(model):
    found = score(
        model,
        mc.Federation.in_process(sites()),
        ["neg_mean_squared_error", "explained_counts", "explained_deviance"],
        by_site=True,
    )
    parts = [all_sums(part_of(model, data, site)) for site, data in sites().items()]
    total = {name: sum(part[name] for part in parts) / FIXED for name in TERMS}
    cells = sum(part["cells"] for part in parts)
    mean = total["counts"] / cells
    of_model = total["logs"] - total["cross"] - total["counts"] + total["predicted"]
    of_mean = total["logs"] - total["counts"] * np.log(mean)
    assert found.values["neg_mean_squared_error"] == pytest.approx(-total["errors"] / cells, rel=1e-12)
    assert found.values["explained_counts"] == pytest.approx(1 - total["errors"] / total["squares"], rel=1e-12)
    assert found.values["explained_deviance"] == pytest.approx(1 - of_model / of_mean, rel=1e-12)
    assert found.n_records == sum(len(data) for data in sites().values())
    assert found.facts["share_unknown"] == 0.0
    for site, part in zip(sites(), parts, strict=True):
        own = found.by_site[site]["neg_mean_squared_error"]
        assert own == pytest.approx(-part["errors"] / FIXED / part["cells"], rel=1e-12)


def test_what_few_stand_behind_is_refused_unmasked_and_asked_for_only_where_it_is_needed(model):
    unmasked = mc.Federation.in_process(sites(), secure_sum=False)
    masked = mc.Federation.in_process(sites())
    assert score(model, unmasked, "explained_counts").values == score(model, masked, "explained_counts").values
    with pytest.raises(DisclosureRefused, match="secure_sum=True"):
        score(model, mc.Federation.in_process(sites(), secure_sum=False), "explained_deviance")
    assert np.isfinite(score(model, masked, "explained_deviance").values["explained_deviance"])


def named(by_site):
    return list(by_site.values())


def test_what_is_hidden_depends_on_the_site_and_its_data_alone():
    model = MODELS["stat"]().fit(mc.Federation.in_process(sites()))
    one, other = named(sites())[:2]
    again, known = part_of(model, one), part_of(model, one)
    assert np.array_equal(again.hidden[1], known.hidden[1])
    assert np.bincount(known.hidden[1], minlength=5).min() > 0
    assert not np.array_equal(part_of(model, other).hidden[0], known.hidden[0])


def test_no_hidden_entry_has_a_part_in_the_prediction():
    model = MODELS["stat"]().fit(mc.Federation.in_process(sites()))
    data = named(sites())[0]
    part = part_of(model, data)
    hidden = part._is_hidden
    changed = mc.data.EventTensor(data.coordinates, data.counts + 5.0 * hidden, data.codes, n_patients=len(data))
    other = part_of(model, changed)
    other.__dict__["hidden"] = part.hidden
    assert np.allclose(other.terms["predicted"], part.terms["predicted"], rtol=1e-12)
    assert other.terms["errors"].sum() > part.terms["errors"].sum()


def test_codes_that_the_model_does_not_know_are_counted_apart():
    model = MODELS["stat"]().fit(mc.Federation.in_process(sites()))
    held = sites()
    mode = next(iter(named(held)[0].codes))
    strange = {name: tuple(f"new-{code}" if place == 0 else code for place, code in enumerate(codes))
               for name, codes in named(held)[0].codes.items()}  # fmt: skip
    data = named(held)[0]
    renamed = mc.data.EventTensor(data.coordinates, data.counts, strange, n_patients=len(data))
    found = score(model, mc.Federation.in_process({"lyon": renamed, "oslo": data}, policy=mc.Policy(min_patients=0)))
    unknown = (data.coordinates[:, 1:] == 0).any(axis=1).sum()
    assert mode in strange
    assert found.facts["share_unknown"] == pytest.approx(unknown / (2 * data.nnz))
    part = part_of(model, renamed)
    answer = part.sum_entries(Nothing())
    assert answer.n_outside == unknown
    assert answer.patients <= part._n_with_outside_code


def test_other_modes_are_named():
    model = MODELS["stat"]().fit(mc.Federation.in_process(sites()))
    data = mc.data.EventTensor([[0, 0, 0]], [1.0], {"other": ["x"], "diagnosis": ["y"]})
    with pytest.raises(SchemaMismatch, match="modes"):
        part_of(model, data)


def test_factors_are_checked_before_use(model):
    good, data = factors_of(model), named(sites())[0]
    assert good.valid_for(data) is good
    mode = next(iter(good.codes))
    broken = [
        {"factors": {**good.factors, mode: good.factors[mode][:-1]}},
        {"factors": {**good.factors, mode: good.factors[mode][:, :-1]}},
        {"factors": {mode: good.factors[mode]}},
        {"codes": {**good.codes, mode: (good.codes[mode][0],) * len(good.codes[mode])}},
        {"cap": -1},
        {"factors": {**good.factors, mode: good.factors[mode] * np.nan}},
    ]
    for changed in broken:
        with pytest.raises(MessageError):
            dataclasses.replace(good, **changed).valid_for(data)


@pytest.mark.parametrize("secure", [False, True], ids=["unmasked", "masked"])
def test_a_model_of_an_outcome_is_scored_as_scikit_learn_scores_it(secure):
    policy = mc.Policy(min_patients=0)
    model = PhenotypeOutcome(drawn_phenotypes(), test_size=0.0).fit(mc.Federation.in_process(sites(), policy=policy))
    federation = mc.Federation.in_process(sites(), policy=policy, secure_sum=secure)
    found = score(model, federation, ["roc_auc", "neg_log_loss", "neg_brier_score", "accuracy"]).values
    truth = np.concatenate([data.outcomes for data in named(sites())])
    chance = np.concatenate([model.predict_proba(data)[:, 1] for data in named(sites())])
    assert found["roc_auc"] == pytest.approx(metrics.roc_auc_score(truth, chance), abs=5e-4)
    assert found["neg_log_loss"] == pytest.approx(-metrics.log_loss(truth, chance), abs=1e-6)
    assert found["neg_brier_score"] == pytest.approx(-metrics.brier_score_loss(truth, chance), abs=1e-6)
    assert found["accuracy"] == pytest.approx(np.mean(truth == (chance > 0.5)))
    law, data = outcome_law(model), named(sites())[0]
    with pytest.raises(MessageError, match="slopes"):
        dataclasses.replace(law, slopes=law.slopes[:-1]).valid_for(data)


def test_patients_without_outcomes_are_not_scored():
    model = PhenotypeOutcome(drawn_phenotypes(), test_size=0.0).fit(mc.Federation.in_process(sites()))
    data = named(sites())[0]
    bare = mc.data.EventTensor(data.coordinates, data.counts, data.codes, n_patients=len(data))
    with pytest.raises(DataError, match="must have outcomes"):
        score(model, mc.Federation.in_process({"lyon": bare}))
