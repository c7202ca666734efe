"""Fed-mv-PPCA as it was published."""
