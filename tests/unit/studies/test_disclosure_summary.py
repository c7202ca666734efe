"""What left a site, summed up from its ledger."""

from multicentre.privacy.ledger import Ledger
from multicentre.studies.disclosure import concerns_patients, summarise_ledgers


def field(name, shape, patients):
    return {"field": name, "shape": shape, "bytes": 8, "patients": patients, "sha256": ""}


def test_releases_are_added_up_by_step_and_field():
    ledger = Ledger()
    facts = {"step": "fit", "protection": "masked"}
    key = ledger.append("release", {**facts, "step": "advertise", "fields": [field("key", [32], None)]})
    for patients in (30, 20, 0):
        ledger.append("release", {**facts, "fields": [field("a", [2, 3], patients), field("n", [], patients)]})
    refusal = ledger.append("refusal", {**facts, "reason": "too few"})
    found = summarise_ledgers({"lyon": ledger})
    rows = {row["field"]: row for row in found["released"]}
    assert rows["a"] == {
        "site": "lyon",
        "step": "fit",
        "field": "a",
        "times": 3,
        "numbers": 18,
        "bytes": 24,
        "patients_min": 20,
        "protection": "masked",
    }
    assert rows["n"]["numbers"] == 3
    assert rows["key"]["patients_min"] is None
    assert found["refused"] == [{"site": "lyon", "step": "fit", "reason": "too few"}]
    assert found["ledgers"] == {"lyon": {"entries": 5, "hash": ledger.head.hash}}
    assert not concerns_patients(key)
    assert concerns_patients(refusal)
    assert concerns_patients(ledger.entries[1])
