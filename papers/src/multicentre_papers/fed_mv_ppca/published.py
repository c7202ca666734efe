"""Table 2 of Balelli, Silva and Lorenzi (IPMI 2021): the ADNI data, which are not the data of this reproduction."""

from __future__ import annotations

from dataclasses import dataclass

DATA_SET = "ADNI, 311 patients"
PPCA, VAE, MCVAE = "Fed-mv-PPCA", "VAE", "mc-VAE"


@dataclass(frozen=True)
class Published:
    """One line of the table: mean and standard deviation over 10 repetitions of each figure."""

    mae_train: tuple[float, float]
    mae_test: tuple[float, float]
    accuracy: tuple[float, float]


TABLE_2: dict[tuple[str, int, str], Published] = {
    ("IID", 1, PPCA): Published((0.0804, 0.0003), (0.1113, 0.0012), (0.8839, 0.0293)),
    ("IID", 1, VAE): Published((0.1061, 0.0277), (0.1350, 0.0380), (0.7364, 0.0246)),
    ("IID", 1, MCVAE): Published((0.1392, 0.0197), (0.1678, 0.0279), (0.8327, 0.0303)),
    ("IID", 3, PPCA): Published((0.1059, 0.0019), (0.1102, 0.0011), (0.8962, 0.0181)),
    ("IID", 3, VAE): Published((0.1183, 0.0355), (0.1206, 0.0340), (0.8681, 0.0170)),
    ("IID", 3, MCVAE): Published((0.1606, 0.0234), (0.1567, 0.0216), (0.8746, 0.0084)),
    ("IID", 6, PPCA): Published((0.1258, 0.0041), (0.1116, 0.0014), (0.8930, 0.0179)),
    ("IID", 6, VAE): Published((0.1340, 0.0433), (0.1176, 0.0342), (0.8071, 0.0339)),
    ("IID", 6, MCVAE): Published((0.1837, 0.0281), (0.1569, 0.0200), (0.8811, 0.0236)),
    ("G", 3, PPCA): Published((0.1090, 0.0041), (0.1112, 0.0013), (0.8586, 0.0272)),
    ("G", 3, VAE): Published((0.1185, 0.0372), (0.1194, 0.0359), (0.7588, 0.0581)),
    ("G", 3, MCVAE): Published((0.1654, 0.0262), (0.1613, 0.0251), (0.7985, 0.0522)),
    ("G", 6, PPCA): Published((0.1312, 0.0113), (0.1126, 0.0014), (0.8538, 0.0354)),
    ("G", 6, VAE): Published((0.1386, 0.0453), (0.1188, 0.0360), (0.7608, 0.0492)),
    ("G", 6, MCVAE): Published((0.1909, 0.0323), (0.1600, 0.0238), (0.7872, 0.0476)),
    ("K", 3, PPCA): Published((0.1056, 0.0118), (0.1300, 0.0154), (0.8713, 0.0227)),
    ("K", 6, PPCA): Published((0.1220, 0.0108), (0.1287, 0.0103), (0.8642, 0.0162)),
    ("G/K", 3, PPCA): Published((0.1020, 0.0087), (0.1301, 0.0110), (0.7098, 0.0329)),
    ("G/K", 6, PPCA): Published((0.1246, 0.0147), (0.1313, 0.0105), (0.7172, 0.0315)),
}
