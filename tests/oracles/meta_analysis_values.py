"""Write meta_analysis_values.json: what the R package metafor finds on the estimates of test_meta_analysis.py.

Run as ``python tests/oracles/meta_analysis_values.py`` where R and metafor are installed; tests read the file alone.
Scoring in metafor ends at a change of 1e-5 by default, here at 1e-14, times the scale of large estimates.
"""

import json
import subprocess
import tempfile
from pathlib import Path

FILE = Path(__file__).with_suffix(".json")
ESTIMATES = {
    "bcg": (
        [-0.8893, -1.5854, -1.3481, -1.4416, -0.2175, -0.7861, -1.6209, 0.0120, -0.4694, -1.3713, -0.3394, 0.4459],
        [0.5706, 0.4411, 0.6445, 0.1415, 0.2263, 0.0831, 0.4722, 0.0629, 0.2376, 0.2702, 0.1114, 0.7297],
    ),
    "maxima": ([0.0, 10.0, 20.0, 1000.0], [0.01, 5.0, 5.0, 200.0]),
    "equal": ([0.31, 0.28, 0.33, 0.30], [0.10, 0.12, 0.20, 0.15]),
    "three": ([0.1, 0.9, 0.4], [0.15, 0.2, 0.3]),
    "two": ([1.5, 2.5], [0.2, 0.4]),
}

R_SCRIPT = """
library(metafor)
number <- function(x) format(x, digits = 17)
lines <- c()
for (name in c(%(names)s)) {
  data <- read.csv(paste0(name, ".csv"))
  for (method in c("EE", "DL", "REML")) for (test in c("z", "knha", "adhoc")) {
    if (method == "EE" && test != "z") next
    terms <- list(threshold = 1e-14 * max(1, max(abs(data$y))^2), maxiter = 10000)
    fit <- rma(data$y, sei = data$e, method = method, test = test, control = terms)
    new <- predict(fit)
    left <- rep(NA, nrow(data))
    if (nrow(data) > 2) left <- sapply(seq_len(nrow(data)), function(i) coef(rma(data$y[-i], sei = data$e[-i],
      method = method, test = test, control = terms)))
    low <- if (method == "EE") NA else new$pi.lb
    high <- if (method == "EE") NA else new$pi.ub
    values <- c(fit$b, fit$se, fit$ci.lb, fit$ci.ub, fit$pval, fit$tau2, fit$QE, fit$QEp, fit$I2 / 100, fit$H2, low,
      high, left)
    text <- ifelse(is.na(values), "null", number(values))
    lines <- c(lines, sprintf('"%%s-%%s-%%s": [%%s]', name, method, test, paste(text, collapse = ", ")))
  }
}
versions <- sprintf('"versions": {"R": "%%s", "metafor": "%%s"}', getRversion(), packageVersion("metafor"))
writeLines(paste0("{", paste(c(versions, lines), collapse = ",\\n"), "}"), "values.json")
"""


def main():
    """Run R in a temporary folder and write the file."""
    with tempfile.TemporaryDirectory() as folder:
        for name, (values, errors) in ESTIMATES.items():
            rows = "\n".join(f"{value!r},{error!r}" for value, error in zip(values, errors, strict=True))
            (Path(folder) / f"{name}.csv").write_text(f"y,e\n{rows}\n")
        script = R_SCRIPT % {"names": ", ".join(f'"{name}"' for name in ESTIMATES)}
        subprocess.run(["Rscript", "-e", script], cwd=folder, check=True)
        values = json.loads((Path(folder) / "values.json").read_text())
    FILE.write_text(json.dumps(values, indent=1) + "\n")


if __name__ == "__main__":
    main()
