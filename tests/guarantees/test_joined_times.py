"""Curves with small counts: times are joined until every count meets the minimum, and no site is asked again."""

import numpy as np
import pytest

import multicentre as mc
from multicentre.core.wire import decode, encode
from multicentre.errors import DisclosureRefused
from multicentre.survival.agreement.coarsening import has_small
from multicentre.survival.curves.tables.site import Table

LEAST = 10


def make_sites(n_sites=3, n=200, **more):
    return {f"site-{i}": mc.datasets.simulate_survival(n, n_columns=2, random_state=i, **more) for i in range(n_sites)}


def fit(sites, model=None, *, least=LEAST, secure_sum=True):
    minimum = {"min_patients_in_total": least} if secure_sum else {}
    policy = mc.Policy(min_patients=least, **minimum)
    with mc.Federation.in_process(sites, policy=policy, secure_sum=secure_sum) as federation:
        fitted = (model or mc.survival.KaplanMeier()).fit(federation)
        return fitted, [call for ledger in federation.ledgers.values() for call in ledger.entries]


@pytest.mark.parametrize("n_sites", [1, 3])
def test_every_count_is_none_or_at_least_the_minimum(n_sites):
    model, _ = fit(make_sites(n_sites), secure_sum=n_sites > 1)
    assert 2 <= len(model.times_) < 64
    assert not has_small(model.table_.events, model.table_.leaving, least=LEAST)


@pytest.mark.parametrize("n_sites", [1, 3])
def test_the_curve_stays_near_that_of_the_fine_grid(n_sites):
    sites = make_sites(n_sites)
    coarse, _ = fit(sites, secure_sum=n_sites > 1)
    fine = mc.survival.KaplanMeier().fit(mc.Federation.in_process(sites, policy=mc.Policy(min_patients=1)))
    times = coarse.times_[coarse.at_risk_[0] >= LEAST]  # between them curves are linear
    assert np.abs(coarse.survival_at(times) - fine.survival_at(times)).max() < 0.03
    assert coarse.n_patients_ == fine.n_patients_


def test_sites_are_asked_for_one_table_however_often_times_are_joined():
    _, entries = fit(make_sites())
    released = [entry["step"] for entry in entries if entry["event"] == "release"]
    assert released.count("sum_table") == 3


def test_the_only_site_joins_times_itself_before_anything_leaves(monkeypatch):
    answers = []
    count = mc.survival.KaplanMeier.site_part.count

    def spy(part, kind, request, **more):
        answers.append(count(part, kind, request, **more))
        return answers[-1]

    monkeypatch.setattr(mc.survival.KaplanMeier.site_part, "count", spy)
    fit(make_sites(1), secure_sum=False)
    tables = [decode(Table, encode(answer)) for answer in answers]
    assert tables
    assert not any(has_small(each.events, each.leaving, least=LEAST) for each in tables)


def test_groups_are_joined_together_and_where_nothing_passes_the_table_is_refused():
    levels = {"group": "x0", "levels": [0.0, 1.0]}
    sites = make_sites()
    for name, one in sites.items():
        X = np.column_stack([one.X[:, 0] > 0, one.X[:, 1]]).astype(float)
        sites[name] = mc.data.SurvivalData(X, one.time, one.event, columns=["x0", "x1"], unit=one.unit)
    model, _ = fit(sites, mc.survival.KaplanMeier(**levels))
    assert not has_small(model.table_.events, model.table_.leaving, least=LEAST)
    with pytest.raises(DisclosureRefused):
        fit(make_sites(3, 12))


def test_summary_caption_and_loaded_model_say_so(tmp_path):
    model, _ = fit(make_sites())
    line = model.coarsening_line_
    assert line.startswith(f"The grid has {len(model.times_)} of 64 times")
    assert line in " ".join(str(model.summary()).split())
    assert all(line in figure.caption for figure in model.figures({}, {}))
    model.save(tmp_path / "model")
    assert mc.survival.KaplanMeier.load(tmp_path / "model").coarsening_line_ == line
    fine, _ = fit(make_sites(), least=0)
    assert fine.coarsening_line_ == ""


@pytest.mark.parametrize("model", [mc.survival.AalenJohansen(causes=(1,)), mc.survival.KaplanMeier(n_times=8)])
def test_the_rule_reaches_every_table_of_times(model):
    fitted, _ = fit(make_sites(), model)
    assert not has_small(fitted.table_.events, fitted.table_.leaving, least=LEAST)
