"""Figure of the software paper: hazard ratios of each site alone, of the federated fit and of the pooled patients.

    python paper/figure.py

All patients are simulated. The script fails unless the federated and the pooled estimates agree.
"""

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

import multicentre as mc

SITES = {"graz": 150, "lyon": 220, "oslo": 180, "porto": 120}
COLUMN = 0
Z_95 = 1.959964  # 97.5 % quantile of the standard normal distribution


def fit(sites):
    """Return the hazard ratio of the column and its 95 % interval."""
    # A site alone may count its own patients.
    policy = mc.Policy(min_patients=10 if len(sites) > 1 else 0, exact_times=True)
    with mc.Federation.in_process(sites, policy=policy) as federation:
        model = mc.survival.FedCox(ties="breslow", times="exact").fit(federation)
    estimate, error = model.coef_[COLUMN], model.standard_errors_[COLUMN]
    return np.exp(estimate + np.array([0.0, -Z_95, Z_95]) * error)


def main():
    sites = {
        name: mc.datasets.simulate_survival(n_patients, n_columns=3, random_state=seed)
        for seed, (name, n_patients) in enumerate(SITES.items())
    }
    rows = {f"{name} alone ({len(data)})": fit({name: data}) for name, data in sites.items()}
    n_patients = sum(SITES.values())
    rows[f"federated ({n_patients})"] = fit(sites)
    rows[f"pooled ({n_patients})"] = fit(mc.data.merge_sites(sites, {"pooled": list(sites)}))
    federated, pooled = list(rows.values())[-2:]
    np.testing.assert_allclose(federated, pooled, rtol=1e-6)

    figure, axes = plt.subplots(figsize=(6.0, 2.6), layout="constrained")
    for place, (estimate, lower, upper) in enumerate(rows.values()):
        axes.plot([lower, upper], [place, place], color="black", linewidth=1)
        axes.plot(estimate, place, "s" if place < len(SITES) else "D", color="black", markersize=5)
    axes.axvline(1.0, color="grey", linewidth=0.8, linestyle=":")
    axes.set_yticks(range(len(rows)), rows)
    axes.invert_yaxis()
    axes.set_xscale("log")
    axes.set_xlabel("Hazard ratio of x0 with 95 % interval (simulated patients)")
    axes.minorticks_off()
    axes.set_xticks(ticks := [1.0, 1.25, 1.5, 2.0, 2.5], map(str, ticks))
    figure.savefig(Path(__file__).with_name("forest.png"), dpi=200)


if __name__ == "__main__":
    main()
