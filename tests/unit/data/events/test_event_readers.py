"""MIMIC-III and DE-SynPUF against tables and tensors made elsewhere; eICU and OMOP on files of their schema."""

import gzip
import logging
import os
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from multicentre.data import EventTensor, read_eicu, read_mimic3, read_omop, read_synpuf
from multicentre.data.events.readers.base import PatientEvents, SeveralSitesWarning
from multicentre.errors import ConfigurationError, DataError

DATA = Path(os.environ.get("MULTICENTRE_DATA", "nowhere"))
MODES = {"procedure": "icd9cm-proc", "diagnosis": "icd9cm-dx"}


def folder(name):
    if not (DATA / name).is_dir():
        pytest.skip(f"MULTICENTRE_DATA names no folder that holds {name}")
    return DATA / name


def write(place, name, text):
    rows = "\n".join(line.strip() for line in text.strip().splitlines()) + "\n"
    if name.endswith(".gz"):
        (place / name).write_bytes(gzip.compress(rows.encode()))
    else:
        (place / name).write_text(rows, encoding="utf-8")


def events_of(read):
    return set(zip(*(read.events[name] for name in ("patient", "date", "system", "code", "admission")), strict=True))


class TestRealMimic:
    def test_tables_are_read_whole(self):
        read = read_mimic3(folder("mimic3_demo"))
        assert read.events["system"].value_counts().to_dict() == {"icd9cm-dx": 1761, "icd9cm-proc": 506}
        assert sum(read.outcomes.values()) == 40
        with np.load(folder("mimic3_demo") / "tensor30d.npz") as made:
            assert read.sites == dict(zip(made["patient_ids"].tolist(), made["site"].tolist(), strict=True))
            assert read.outcomes == dict(zip(made["patient_ids"].tolist(), made["label"].tolist(), strict=True))
        assert len(read.n_sites_of_patient) == 8
        with pytest.warns(SeveralSitesWarning, match="8 of 100 patients are recorded at several sites"):
            parts = read.by_site()
        assert {site: len(part.outcomes) for site, part in parts.items()} == {
            "CCU": 12,
            "CSRU": 6,
            "MICU": 54,
            "SICU": 20,
            "TSICU": 8,
        }
        assert sum(len(part.events) for part in parts.values()) == 2267

    def test_the_tensor_made_elsewhere_is_that_of_admissions_30_days_apart(self):
        """It counts a code as often as an admission lists it, we count it once: tell repeats apart, then add up."""
        events = read_mimic3(folder("mimic3_demo")).events
        repeat = events.groupby(["admission", "system", "code"]).cumcount().astype(str)
        apart = events.assign(code=events["code"] + "#" + repeat)
        tensor = EventTensor.from_events(apart, modes=MODES, anchor="sliding")
        ours = pd.DataFrame({"patient": tensor.ids[tensor.coordinates[:, 0]], "count": tensor.counts})
        for column, mode in enumerate(tensor.modes, start=1):
            plain = [code.partition(":")[2].partition("#")[0] for code in tensor.codes[mode]]
            ours[mode] = np.array(plain)[tensor.coordinates[:, column]]
        ours = ours.groupby(["patient", "procedure", "diagnosis"])["count"].sum()
        with np.load(folder("mimic3_demo") / "tensor30d.npz") as made:
            theirs = pd.Series(
                made["count"].astype(float),
                index=[
                    made["patient_ids"][made["patient"]],
                    made["procedure_codes"][made["procedure"]],
                    made["diagnosis_codes"][made["diagnosis"]],
                ],
            )
        assert len(ours) == 7461
        assert ours.to_dict() == theirs.to_dict()
        once = EventTensor.from_events(events, modes=MODES, anchor="sliding")
        assert once.shape == (88, 164, 541)
        assert (once.nnz, once.counts.sum()) == (7461, 8497)


@pytest.mark.slow
def test_synpuf_gives_the_tensor_made_elsewhere_exactly():
    pytest.importorskip("pyarrow")
    read = read_synpuf(folder("synpuf500"))
    assert sum(read.outcomes.values()) == 14
    modes = {"procedure": ["hcpcs", "icd9cm-proc"], "diagnosis": "icd9cm-dx"}
    tensor = EventTensor.from_events(read.events, modes=modes, anchor="sliding")
    with np.load(folder("synpuf500") / "tensor30d.npz") as made:
        assert read.sites == dict(zip(made["patient_ids"].tolist(), made["site"].tolist(), strict=True))
        patients, rows = np.unique(made["patient"], return_inverse=True)
        assert tensor.ids.tolist() == made["patient_ids"][patients].tolist()
        assert [code.partition(":")[2] for code in tensor.codes["diagnosis"]] == made["diagnosis_codes"].tolist()
        theirs = [
            name.replace("HCPCS", "hcpcs").replace("ICD9P", "icd9cm-proc") for name in made["procedure_codes"].tolist()
        ]
        assert list(tensor.codes["procedure"]) == theirs
        np.testing.assert_array_equal(tensor.coordinates, np.column_stack([rows, made["procedure"], made["diagnosis"]]))
        np.testing.assert_array_equal(tensor.counts, made["count"])


@pytest.fixture
def mimic(tmp_path):
    write(
        tmp_path,
        "ADMISSIONS.csv.gz",
        """ROW_ID,SUBJECT_ID,HADM_ID,ADMITTIME,HOSPITAL_EXPIRE_FLAG
        1,10,100,2150-01-01 10:00:00,0
        2,10,101,2150-03-01 10:00:00,1
        3,11,102,2150-01-01 10:00:00,0""",
    )
    write(tmp_path, "DIAGNOSES_ICD.csv", "SUBJECT_ID,HADM_ID,ICD9_CODE\n10,100,0030\n10,101,4280\n11,102,")
    write(tmp_path, "procedures_icd.csv", "subject_id,hadm_id,icd9_code\n10,100,0040\n11,102,NA")
    write(
        tmp_path,
        "icustays.csv",
        """subject_id,hadm_id,intime,first_careunit
        10,101,2150-03-01 11:00:00,SICU
        10,100,2150-01-01 11:00:00,MICU""",
    )
    return tmp_path


def test_mimic_in_any_case_keeps_zeros_and_leaves_out_rows_without_code(mimic, caplog):
    with caplog.at_level(logging.INFO, "multicentre.data.events"):
        read = read_mimic3(mimic)
    first, second = "2150-01-01 10:00:00", "2150-03-01 10:00:00"
    assert events_of(read) == {
        ("10", first, "icd9cm-dx", "0030", "100"),
        ("10", second, "icd9cm-dx", "4280", "101"),
        ("10", first, "icd9cm-proc", "0040", "100"),
        ("11", first, "icd9cm-proc", "NA", "102"),
    }
    assert "MIMIC-III: left out 1 of 5 events without patient, date or code" in caplog.messages
    assert read.outcomes == {"10": 1, "11": 0}
    assert read.sites == {"10": "MICU"}
    assert {site: part.outcomes for site, part in read.by_site("first").items()} == {"MICU": {"10": 1}}
    split = read.by_site("split")
    assert {site: sorted(part.events["code"]) for site, part in split.items()} == {
        "MICU": ["0030", "0040"],
        "SICU": ["4280"],
    }
    assert repr(read) == "PatientEvents(2 patients, 4 events)"


def test_synpuf_reads_the_files_of_cms(tmp_path):
    write(
        tmp_path,
        "DE1_0_2008_Beneficiary_Summary_File_Sample_1.csv",
        "DESYNPUF_ID,BENE_DEATH_DT,SP_STATE_CODE\nA,,06\nB,,45",
    )
    write(
        tmp_path,
        "DE1_0_2009_Beneficiary_Summary_File_Sample_1.csv",
        "DESYNPUF_ID,BENE_DEATH_DT,SP_STATE_CODE\nA,20090501,06\nB,,45",
    )
    write(
        tmp_path,
        "DE1_0_2008_to_2010_Inpatient_Claims_Sample_1.csv",
        """DESYNPUF_ID,CLM_ID,SEGMENT,CLM_FROM_DT,ADMTNG_ICD9_DGNS_CD,ICD9_DGNS_CD_1,ICD9_DGNS_CD_10,ICD9_PRCDR_CD_1
        A,7,1,20080913,5609,0030,V453,0040
        A,8,1,,,4280,,""",
    )
    write(
        tmp_path,
        "DE1_0_2008_to_2010_Carrier_Claims_Sample_1A.csv",
        """DESYNPUF_ID,CLM_ID,CLM_FROM_DT,ICD9_DGNS_CD_1,HCPCS_CD_1,HCPCS_CD_13,LINE_ICD9_DGNS_CD_1
        B,9,20081129,9791,99285,0005F,3004""",
    )
    read = read_synpuf(tmp_path)
    assert events_of(read) == {
        ("A", "20080913", "icd9cm-dx", "0030", "7"),
        ("A", "20080913", "icd9cm-dx", "V453", "7"),
        ("A", "20080913", "icd9cm-proc", "0040", "7"),
        ("B", "20081129", "icd9cm-dx", "9791", "9"),
        ("B", "20081129", "hcpcs", "99285", "9"),
        ("B", "20081129", "hcpcs", "0005F", "9"),
    }
    assert (read.outcomes, read.sites) == ({"A": 1, "B": 0}, {"A": "06", "B": "45"})
    assert EventTensor.from_events(read.events, modes=MODES).shape == (1, 1, 2)


def test_eicu_parts_codes_of_both_revisions_and_counts_days_from_the_admission(tmp_path):
    write(
        tmp_path,
        "patient.csv.gz",
        """patientunitstayid,patienthealthsystemstayid,uniquepid,hospitalid,hospitaladmitoffset,hospitaldischargestatus
        1,50,002-1,73,-1500,Alive
        2,50,002-1,73,-4000,Alive
        3,51,002-2,73,0,Expired""",
    )
    write(
        tmp_path,
        "diagnosis.csv",
        """diagnosisid,patientunitstayid,diagnosisoffset,diagnosisstring,icd9code
        1,1,30,pulmonary|failure,"518.81, J96.00"
        2,2,10,renal|failure,"V45.11, E878.1, E87.6"
        3,3,-10,unknown,""",
    )
    write(
        tmp_path,
        "treatment.csv",
        """treatmentid,patientunitstayid,treatmentoffset,treatmentstring
        1,1,0,pulmonary|ventilation and oxygenation|mechanical ventilation""",
    )
    read = read_eicu(tmp_path)
    ventilation = "pulmonary|ventilation and oxygenation|mechanical ventilation"
    assert events_of(read) == {
        ("002-1", "2000-01-02", "icd9cm-dx", "518.81", "50"),
        ("002-1", "2000-01-02", "icd10cm", "J96.00", "50"),
        ("002-1", "2000-01-03", "icd9cm-dx", "V45.11", "50"),
        ("002-1", "2000-01-03", "icd9cm-dx", "E878.1", "50"),
        ("002-1", "2000-01-03", "icd10cm", "E87.6", "50"),
        ("002-1", "2000-01-02", "eicu-treatment", ventilation, "50"),
    }
    assert (read.outcomes, read.sites) == ({"002-1": 0, "002-2": 1}, {"002-1": "73", "002-2": "73"})
    modes = {"treatment": "eicu-treatment", "diagnosis": ["icd9cm-dx", "icd10cm"]}
    tensor = EventTensor.from_events(read.events, modes=modes, anchor="admission")
    assert tensor.shape == (1, 1, 5)
    assert "icd10cm:E876" in tensor.codes["diagnosis"]


@pytest.fixture
def omop(tmp_path):
    write(tmp_path, "PERSON.csv", "person_id,care_site_id\n1,8\n2,")
    write(
        tmp_path,
        "CONDITION_OCCURRENCE.csv",
        """person_id,condition_concept_id,condition_start_date,visit_occurrence_id,condition_source_value
        1,316139,2020-01-05,3,I50.9
        2,0,2020-01-05,,X99""",
    )
    write(
        tmp_path,
        "PROCEDURE_OCCURRENCE.csv",
        """person_id,procedure_concept_id,procedure_date,visit_occurrence_id,procedure_source_value
        1,4032243,2020-01-06,3,5A1D70Z""",
    )
    return tmp_path


def test_omop_gives_standard_concepts_or_the_codes_of_the_hospital(omop):
    read = read_omop(omop)
    assert events_of(read) == {
        ("1", "2020-01-06", "omop-procedure", "4032243", "3"),
        ("1", "2020-01-05", "omop-condition", "316139", "3"),
    }
    assert (read.outcomes, read.sites) == (None, {"1": "8"})
    own = read_omop(omop, {"condition": "icd10cm", "procedure": "icd10pcs"}).events
    assert set(zip(own["system"], own["code"], strict=True)) == {
        ("icd10pcs", "5A1D70Z"),
        ("icd10cm", "I50.9"),
        ("icd10cm", "X99"),
    }
    write(omop, "death.csv", "person_id,death_date\n2,2020-02-01")
    assert read_omop(omop).outcomes == {"1": 0, "2": 1}
    with pytest.raises(ConfigurationError, match="source_systems"):
        read_omop(omop, {"condition": "icd10cm"})


class TestPatientsOfSeveralSites:
    """Patient a was at two hospitals, b at one, and nobody knows where c was."""

    def read(self, **more):
        rows = [("a", "x"), ("a", "y"), ("b", "y"), ("c", None)]
        frame = pd.DataFrame(rows, columns=["patient", "site"]).assign(system="icd9cm-dx", code="4280")
        return PatientEvents(
            frame.assign(date="2020-01-01"), {"a": 1, "b": 0, "c": 0}, {"a": "x", "b": "y"}, {"a": 2}, **more
        )

    def patients(self, several):
        return {site: sorted(set(part.events["patient"])) for site, part in self.read().by_site(several).items()}

    def test_by_default_the_first_site_gets_them_with_a_count(self):
        with pytest.warns(SeveralSitesWarning, match="1 of 3 patients are recorded at several sites"):
            parts = self.read().by_site()
        assert {site: len(part.events) for site, part in parts.items()} == {"x": 2, "y": 1}

    def test_the_options(self):
        assert self.patients("first") == {"x": ["a"], "y": ["b"]}
        assert self.patients("split") == {"x": ["a"], "y": ["a", "b"]}
        assert self.patients("drop") == {"y": ["b"]}

    def test_splitting_requires_events_with_a_site(self):
        without = PatientEvents(self.read().events.drop(columns="site"), None, {"a": "x"}, {"a": 2})
        with pytest.raises(DataError, match="events must name the site"):
            without.by_site("split")

    def test_patients_without_a_site_are_counted_in_the_log(self, caplog):
        with caplog.at_level(logging.INFO, "multicentre.data.events"):
            self.read().by_site("first")
        assert "Left out 1 patients without a site" in caplog.messages


def test_no_known_care_site_is_an_error(omop):
    write(omop, "PERSON.csv", "person_id,care_site_id\n1,\n2,")
    with pytest.raises(DataError, match="at least one patient must have a site; none has") as caught:
        read_omop(omop).by_site()
    assert "care_site_id" in str(caught.value.hint)


class TestWhatIsWrongWithFiles:
    def test_a_folder_that_is_not_there(self, tmp_path):
        with pytest.raises(DataError, match="folder must be an existing folder"):
            read_omop(tmp_path / "gone")

    def test_a_table_that_is_not_there(self, mimic):
        (mimic / "icustays.csv").unlink()
        with pytest.raises(DataError, match="the folder must contain a table icustays"):
            read_mimic3(mimic)

    def test_a_column_that_is_not_there(self, mimic):
        write(mimic, "DIAGNOSES_ICD.csv", "SUBJECT_ID,HADM_ID,CODE\n10,100,0030")
        with pytest.raises(DataError, match="the table must have a column 'icd9_code'"):
            read_mimic3(mimic)

    def test_a_file_that_is_cut_short(self, mimic):
        file = mimic / "ADMISSIONS.csv.gz"
        file.write_bytes(file.read_bytes()[:-12])
        with pytest.raises(DataError, match="the file is damaged or incomplete"):
            read_mimic3(mimic)

    def test_claims_or_people_that_are_not_there(self, tmp_path):
        with pytest.raises(DataError, match="the folder must contain a beneficiary file"):
            read_synpuf(tmp_path)
        write(tmp_path, "bene.csv", "DESYNPUF_ID,BENE_DEATH_DT,SP_STATE_CODE\nA,,06")
        with pytest.raises(DataError, match="the folder must contain claims"):
            read_synpuf(tmp_path)

    def test_parquet_codes_that_are_numbers_still_warn(self, mimic):
        pytest.importorskip("pyarrow")
        (mimic / "procedures_icd.csv").unlink()
        pd.DataFrame({"SUBJECT_ID": [10], "HADM_ID": [100], "ICD9_CODE": [40]}).to_parquet(
            mimic / "PROCEDURES_ICD.parquet"
        )
        read = read_mimic3(mimic)
        with pytest.warns(UserWarning, match="column 'code'"):
            tensor = EventTensor.from_events(read.events, modes=MODES, outcomes=read.outcomes)
        assert tensor.ids.tolist() == ["10"]
