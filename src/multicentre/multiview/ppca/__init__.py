"""Fed-mv-PPCA (Balelli, Silva and Lorenzi, IPMI 2021)."""
