import numpy as np
import pytest

from multicentre.errors import ConfigurationError, NotConverged
from multicentre_papers.baselines.cp import CPALS, CPSGD
from multicentre_papers.entry_descent import MaskedLossWarning
from support.event_sites import simulate_events

ignored = pytest.mark.filterwarnings("ignore:CPSGD minimises the error at positive entries only:UserWarning")


@pytest.fixture(scope="module")
def tensor():
    return simulate_events(200, rate=0.3).tensor


@pytest.mark.slow
def test_it_warns_of_its_loss(tensor):
    with pytest.warns(MaskedLossWarning, match="recovers no phenotypes"):
        CPSGD(3, max_epochs=1).fit(tensor)


@ignored
@pytest.mark.parametrize("shuffle", ["entries", "patients"])
def test_it_memorises_entries_and_fails_over_all_cells(tensor, shuffle):
    fit = CPSGD(3, learning_rate=0.02, max_epochs=60, shuffle=shuffle).fit(tensor)
    at_entries = [line["rmse_at_entries"] for line in fit.history_]
    assert len(at_entries) == fit.n_iter_ == 60
    assert at_entries[-1] < 0.6 * at_entries[0]
    assert fit.reconstruction_errors_.rmse_at_entries == pytest.approx(at_entries[-1])
    assert fit.reconstruction_errors_.rmse == pytest.approx(fit.history_[-1]["rmse"])
    als = CPALS(3, nonnegative=True).fit(tensor)
    assert fit.reconstruction_errors_.rmse_at_entries < als.reconstruction_errors_.rmse_at_entries
    assert fit.reconstruction_errors_.rmse > fit.reconstruction_errors_.rmse_of_zero > als.reconstruction_errors_.rmse


@ignored
def test_the_start_predicts_the_mean_entry():
    tensor = simulate_events(200).tensor
    fit = CPSGD(5, learning_rate=1e-12, max_epochs=1).fit(tensor)
    mean = np.einsum("ir,jr,kr->", fit.memberships_, *fit.factors_.values()) / np.prod(tensor.shape)
    assert mean == pytest.approx(tensor.counts.mean(), rel=0.15)


@ignored
def test_signs_are_kept_or_free(tensor):
    bound = CPSGD(3, learning_rate=0.1, max_epochs=20).fit(tensor)
    free = CPSGD(3, learning_rate=0.1, max_epochs=20, nonnegative=False).fit(tensor)
    assert min(bound.memberships_.min(), *(factor.min() for factor in bound.factors_.values())) >= 0
    assert free.memberships_.min() < 0
    assert free.transform(tensor).min() < 0 <= bound.transform(tensor).min()


@ignored
def test_patients_without_an_entry_stay_where_they_began(tensor):
    padded = type(tensor)(tensor.coordinates, tensor.counts, tensor.codes, n_patients=201)
    fit = CPSGD(3, max_epochs=2).fit(padded)
    assert (fit.memberships_[-1] > 0).all()


@ignored
def test_order_and_start_are_seeded(tensor):
    one, same, other = (CPSGD(3, max_epochs=2, random_state=seed).fit(tensor) for seed in (1, 1, 2))
    assert one.memberships_.tobytes() == same.memberships_.tobytes() != other.memberships_.tobytes()


@ignored
def test_a_descent_that_diverges_says_so(tensor):
    with pytest.raises(NotConverged, match="learning_rate"):
        CPSGD(3, learning_rate=50.0).fit(tensor)


@ignored
@pytest.mark.parametrize(
    ("given", "where"),
    [
        ({"rank": 13}, "rank"),
        ({"learning_rate": 0.0}, "learning_rate"),
        ({"max_epochs": 1.5}, "max_epochs"),
        ({"shuffle": "codes"}, "shuffle"),
        ({"nonnegative": 1}, "nonnegative"),
    ],
)
def test_parameters_that_cannot_be_used_are_refused(tensor, given, where):
    with pytest.raises(ConfigurationError) as refused:
        CPSGD(**{"rank": 3, **given}).fit(tensor)
    assert refused.value.where == where
