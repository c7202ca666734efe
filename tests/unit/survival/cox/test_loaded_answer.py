"""A Cox model answers after it was saved and loaded, whether proportional hazards were tested before or not."""

import multicentre as mc


def test_a_loaded_model_answers_without_its_sites(tmp_path):
    sites = {name: mc.datasets.simulate_survival(120, 2, seed) for seed, name in enumerate("abc")}
    model = mc.survival.FedCox().fit(mc.Federation.in_process(sites))
    model.save(tmp_path / "before")
    answer = model.answer()  # requests the test
    model.save(tmp_path / "after")
    assert mc.survival.FedCox.load(tmp_path / "after").answer() == answer
    assert mc.survival.FedCox.load(tmp_path / "before").answer().startswith("Hazard ratio")
