"""Verdicts follow the figures, in both directions."""

import pytest

from multicentre_papers.fed_mv_ppca.aggregate import Row, summarise
from multicentre_papers.fed_mv_ppca.measure import Figures
from multicentre_papers.fed_mv_ppca.methods import INVARIANT, PAPER, POOLED
from multicentre_papers.fed_mv_ppca.selection import Choice, mean_by_candidate, picked
from multicentre_papers.fed_mv_ppca.unmeasured import Imputed
from multicentre_papers.fed_mv_ppca.verdicts import judge_selection, judge_table, judge_unmeasured


def line(method, scenario, n_sites, mae=0.0095, accuracy=1.0, ll=70.0, imputed=0.012):
    figures = Figures(0.009, mae, accuracy, ll, imputed, 0.21, 10, True, 0.1)
    return Row("sd", scenario, n_sites, method, 0, 0, 5, figures)


def verdict(rows, of):
    (found,) = [one for one in judge_table("sd", summarise(rows)) if of in one.claim]
    return found


@pytest.mark.parametrize(("mae", "reached"), [(0.0096, True), (0.0098, False)])
def test_stability_compares_with_one_centre(mae, reached):
    rows = [line(PAPER, "IID", 1), line(PAPER, "IID", 3), line(PAPER, "G/K", 3, mae)]
    found = verdict(rows, "within 2 %")
    assert found.reached is reached
    assert "G/K with 3" in found.figures


@pytest.mark.parametrize(("rival", "reached"), [(0.0104, True), (0.0102, False)])
def test_the_better_auto_encoder_counts(rival, reached):
    rows = [line(PAPER, "IID", 1), line("VAE", "IID", 1, rival, ll=float("nan")), line("mc-VAE", "IID", 1, 0.5)]
    assert verdict(rows, "0.92 times").reached is reached


@pytest.mark.parametrize(
    ("scenario", "gap", "reached"), [("IID", 0.005, True), ("IID", 0.02, False), ("K", 0.2, True), ("G/K", 0.4, False)]
)
def test_distance_to_the_pooled_fit_is_judged_by_scenario(scenario, gap, reached):
    rows = [line(POOLED, scenario, 3), line(INVARIANT, scenario, 3, ll=70.0 - gap)]
    assert verdict(rows, "pooled fit").reached is reached


@pytest.mark.parametrize(("imputed", "reached"), [(0.0146, True), (0.0148, False)])
def test_imputation_is_judged_by_its_share_of_the_means_error(imputed, reached):
    assert verdict([line(INVARIANT, "IID", 3, imputed=imputed)], "predicted from the others").reached is reached


def test_levels_of_error_and_accuracy():
    rows = [line(INVARIANT, "IID", 3, 0.0106, accuracy=0.99), line(INVARIANT, "G/K", 3, 0.0109)]
    assert not verdict(rows, "MAE test at most 0.0105").reached
    assert not verdict(rows, "accuracy in latent space at least 0.9995").reached


def choices(*waics, repetition=0):
    mae = {4: 0.025, 5: 0.0098, 6: 0.0093, 7: 0.0087}
    return [Choice(repetition, q, waic, mae[q]) for q, waic in zip(mae, waics, strict=True)]


def test_the_lowest_waic_of_each_repetition_is_picked():
    many = choices(-4.0, -9.0, -8.0, -7.0) + choices(-4.0, -8.0, -9.0, -7.0, repetition=1)
    assert picked(many) == [5, 6]
    assert mean_by_candidate(many)[5] == pytest.approx((-8.5, 0.0098))
    dimension, error = judge_selection(many)
    assert not dimension.reached
    assert error.reached
    assert judge_selection(choices(-4.0, -9.0, -8.0, -7.0))[0].reached


def test_a_view_never_measured_is_judged_against_the_mean():
    rows = [Imputed(2, "invariant", "c", r, 0, 0.1, error, 0.13, 0.9) for r, error in enumerate((0.12, 0.13))]
    (better,) = judge_unmeasured(rows)
    (worse,) = judge_unmeasured(rows[1:])
    assert better.reached
    assert not worse.reached
    assert "0.1250 against 0.1300" in better.figures
