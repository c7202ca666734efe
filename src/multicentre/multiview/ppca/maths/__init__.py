"""The equations of Fed-mv-PPCA as pure functions of arrays."""
