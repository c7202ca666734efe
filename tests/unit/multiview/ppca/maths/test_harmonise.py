import numpy as np
import pytest
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.model_selection import cross_val_score

from multicentre.multiview.ppca.maths.describe import harmonise
from multicentre.multiview.ppca.maths.model import LatentLaw, Parameters
from multicentre.multiview.ppca.maths.prior import Prior
from multicentre.multiview.ppca.maths.rows import sum_entries, update_law
from multicentre_papers.published.ppca.entries import maximise_entries
from support.ppca_predict_simulation import LAYOUT, fit_shared, simulate


@pytest.fixture
def law_of_rows():
    rng = np.random.default_rng(0)
    return Parameters(rng.standard_normal((6, 2)), rng.standard_normal(6), rng.uniform(0.5, 1, 6))


def test_a_centre_like_the_others_keeps_its_rows(law_of_rows):
    X = np.random.default_rng(1).standard_normal((10, 6))
    X[2, 3] = np.nan
    law = LatentLaw(np.array([1.0, -1.0]), np.diag([2.0, 0.5]))
    np.testing.assert_allclose(harmonise(X, law_of_rows, law_of_rows, law), X, atol=1e-12)


def test_an_offset_and_a_noise_scale_are_undone(law_of_rows):
    rng = np.random.default_rng(2)
    latent, noise = rng.standard_normal((5000, 2)), rng.standard_normal((5000, 6)) * np.sqrt(law_of_rows.noise)
    signal = latent @ law_of_rows.loadings.T + law_of_rows.mean
    local = Parameters(law_of_rows.loadings, law_of_rows.mean + 3, 4 * law_of_rows.noise)
    result = harmonise(signal + 3 + 2 * noise, local, law_of_rows)
    np.testing.assert_allclose(result.mean(axis=0), law_of_rows.mean, atol=0.1)
    left = result - harmonise(signal + 3, local, law_of_rows)
    assert left.var() < (2 * noise).var()


def fit_centres(sites, *, own_laws, rounds=30, steps=3):
    """Shared loadings, then each centre's own mean and noise around the shared ones."""
    shared, laws = fit_shared(sites, LAYOUT, 5, rounds=20)
    if not own_laws:
        shared, laws = fit_shared([np.vstack(sites)], LAYOUT, 5, rounds=20)[0], [LatentLaw.standard(5)] * len(sites)
    local = [shared] * len(sites)
    for _ in range(rounds):
        noise = shared.noise[LAYOUT.starts]
        prior = Prior(shared.loadings, shared.mean, np.full(3, 1e-4), np.full(3, 0.16), np.ones(3), noise, noise)
        for _ in range(steps):
            sums = [sum_entries(*each) for each in zip(sites, local, laws, strict=True)]
            local = [maximise_entries(s, p, prior, LAYOUT) for s, p in zip(sums, local, strict=True)]
            laws = [update_law(s.latent_first, s.latent_second, s.n_rows) for s in sums] if own_laws else laws
        shared = Parameters(
            *(np.mean([getattr(p, part) for p in local], axis=0) for part in ("loadings", "mean", "noise"))
        )
    return shared, local, laws


def accuracy(rows, label):
    return cross_val_score(LinearDiscriminantAnalysis(), rows, label, cv=5).mean()


def with_centre_effects(data, site, rng):
    sd = data.rows.std(axis=0)
    offsets = 0.4 * sd * rng.standard_normal((4, 33))
    extra = np.array([0.0, 0.05, 0.1, 0.15])[site][:, None] * sd
    return data.rows + offsets[site] + extra * rng.standard_normal(data.rows.shape)


def run(data, site, seed, **options):
    rows = with_centre_effects(data, site, np.random.default_rng(seed))
    sites = [rows[site == c] for c in range(4)]
    shared, local, laws = fit_centres(sites, **options)
    clean = np.empty_like(rows)
    for c in range(4):
        clean[site == c] = harmonise(sites[c], local[c], shared, laws[c])
    return rows, clean


def distance(rows, data):
    centred = (rows - rows.mean(axis=0)) - (data.rows - data.rows.mean(axis=0))
    return np.sqrt(np.mean((centred / data.rows.std(axis=0)) ** 2))


@pytest.mark.slow
def test_the_centre_goes_and_the_patients_stay():
    data = simulate(0)
    site = np.arange(400) % 4
    rows, clean = run(data, site, 100, own_laws=True)
    assert accuracy(rows, site) > 0.97
    assert accuracy(clean, site) < 0.33
    assert accuracy(clean, data.group) > accuracy(data.rows, data.group) - 0.03
    assert distance(clean, data) < 0.6 * distance(rows, data)


@pytest.mark.slow
def test_case_mix_survives_only_when_each_centre_has_its_latent_law():
    data = simulate(2)
    site = np.where(data.group, np.arange(400) % 2, 2 + np.arange(400) % 2)
    _, kept = run(data, site, 102, own_laws=True)
    _, lost = run(data, site, 102, own_laws=False, rounds=100)
    gap = {
        name: rows[data.group].mean(axis=0) - rows[~data.group].mean(axis=0)
        for name, rows in {"true": data.rows, "kept": kept, "lost": lost}.items()
    }
    size = {name: np.linalg.norm(each) for name, each in gap.items()}
    assert size["kept"] > 0.75 * size["true"]
    assert size["lost"] < 0.75 * size["kept"]
