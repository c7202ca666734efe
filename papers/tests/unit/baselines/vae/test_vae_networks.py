"""The lower bound against closed forms, and local training against torch's own Adam."""

import numpy as np
import pytest
from scipy.stats import multivariate_normal

from multicentre_papers.baselines.vae.maths import Architecture, Model, draw_start, noise_of
from multicentre_papers.baselines.vae.networks import negative_bound, train_locally

pytestmark = pytest.mark.slow

torch = pytest.importorskip("torch", reason="torch is not installed (extra: deep)")


def random_model(architecture, seed=0):
    random = np.random.default_rng(seed)
    start = draw_start(architecture, random)
    noise = {noise_of(k): random.uniform(-1, 0.5, d) for k, d in enumerate(architecture.channels)}
    return Model(start.matrices, {**start.vectors, **noise})


def tensors(model):
    return Model(*({name: torch.from_numpy(values) for name, values in group.items()} for group in model))


def expected_bound(model, architecture, rows):
    """The bound's mean over latent draws: exact for linear decoders, by the 2q-point rule for quadratics."""
    q = architecture.n_components
    points = np.vstack([np.eye(q), -np.eye(q)]) * np.sqrt(q)
    n_draws = len(architecture.channels) * len(rows)
    data, parameters = torch.from_numpy(rows), tensors(model)
    draws = [torch.from_numpy(np.tile(point, (n_draws, 1))) for point in points]
    return -float(np.mean([negative_bound(parameters, architecture, data, draw).item() for draw in draws]))


def closed_form(model, architecture, rows):
    """The bound of a linear model, from Gaussian identities."""
    total = 0.0
    for k, block in enumerate(architecture.blocks, start=1):
        mean, log_variance = (
            rows[:, block] @ model.matrices[f"encoder-{k}/{what}"].T + model.vectors[f"encoder-{k}/{what}"]
            for what in ("mean", "log-variance")
        )
        posterior = torch.distributions.Normal(torch.from_numpy(mean), torch.from_numpy(np.exp(log_variance / 2)))
        prior = torch.distributions.Normal(torch.zeros((), dtype=torch.float64), 1.0)
        total -= torch.distributions.kl_divergence(posterior, prior).sum().item()
        for i, other in enumerate(architecture.blocks, start=1):
            loadings, noise = model.matrices[f"decoder-{i}/mean"], np.exp(model.vectors[f"decoder-{i}/noise"])
            predicted = mean @ loadings.T + model.vectors[f"decoder-{i}/mean"]
            density = torch.distributions.Normal(torch.from_numpy(predicted), torch.from_numpy(np.sqrt(noise)))
            total += density.log_prob(torch.from_numpy(rows[:, other])).sum().item()
            total -= 0.5 * float((np.exp(log_variance) @ (loadings**2 / noise[:, None]).T).sum())
    return total / (len(architecture.channels) * len(rows))


@pytest.mark.parametrize("channels", [(5,), (2, 3), (2, 1, 4)])
@pytest.mark.parametrize("q", [1, 3])
def test_linear_bound_equals_its_closed_form(channels, q):
    architecture = Architecture(channels, q)
    model = random_model(architecture)
    rows = np.random.default_rng(1).standard_normal((7, sum(channels)))
    assert expected_bound(model, architecture, rows) == pytest.approx(closed_form(model, architecture, rows), abs=1e-10)


def test_bound_is_the_log_likelihood_when_the_encoder_is_the_posterior():
    architecture = Architecture((4,), 1)
    model = random_model(architecture)
    loadings, offset = model.matrices["decoder-1/mean"], model.vectors["decoder-1/mean"]
    noise = np.exp(model.vectors["decoder-1/noise"])
    precision = 1.0 + float((loadings[:, 0] ** 2 / noise).sum())
    weights = (loadings[:, 0] / noise / precision)[None]
    exact = Model(
        {**model.matrices, "encoder-1/mean": weights, "encoder-1/log-variance": np.zeros((1, 4))},
        {**model.vectors, "encoder-1/mean": -weights @ offset, "encoder-1/log-variance": -np.log([precision])},
    )
    rows = np.random.default_rng(1).standard_normal((9, 4))
    law = multivariate_normal(offset, loadings @ loadings.T + np.diag(noise))
    likelihood = float(law.logpdf(rows).mean())
    assert expected_bound(exact, architecture, rows) == pytest.approx(likelihood, abs=1e-10)
    assert expected_bound(model, architecture, rows) < likelihood


@pytest.mark.parametrize("hidden", [(), (4,)])
@pytest.mark.parametrize("proximal", [0.0, 0.7])
def test_training_equals_torch_adam_on_the_penalised_bound(hidden, proximal):
    architecture = Architecture((3, 2), 2, hidden)
    start = random_model(architecture)
    random = np.random.default_rng(2)
    rows, noise = random.standard_normal((8, 5)), random.standard_normal((6, 16, 2))
    trained = train_locally(start, architecture, rows, noise, 0.03, proximal)

    free = tensors(Model(*({name: values.copy() for name, values in group.items()} for group in start)))
    parameters = [values.requires_grad_() for group in free for values in group.values()]
    sent = [values.detach().clone() for values in parameters]
    optimiser = torch.optim.Adam(parameters, lr=0.03)
    for draw in noise:
        loss = negative_bound(free, architecture, torch.from_numpy(rows), torch.from_numpy(draw))
        loss = loss + proximal / 2 * sum((w - w0).square().sum() for w, w0 in zip(parameters, sent, strict=True))
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    for got, expected in zip(trained.model, free, strict=True):
        for name, values in expected.items():
            np.testing.assert_allclose(got[name], values.detach().numpy(), atol=1e-10)


def test_training_reports_the_bound_of_the_model_that_was_sent_and_leaves_it_alone():
    architecture = Architecture((3,), 1)
    start = random_model(architecture)
    random = np.random.default_rng(3)
    rows, noise = random.standard_normal((5, 3)), random.standard_normal((4, 5, 1))
    before = {name: values.copy() for name, values in start.matrices.items()}
    trained = train_locally(start, architecture, rows, noise, 0.1, 0.0)
    expected = -negative_bound(tensors(start), architecture, torch.from_numpy(rows), torch.from_numpy(noise[0])).item()
    assert trained.bound == pytest.approx(expected)
    assert all(np.array_equal(before[name], start.matrices[name]) for name in before)
    assert not np.shares_memory(trained.model.matrices["decoder-1/mean"], start.matrices["decoder-1/mean"])
