"""Missing values: counted, filled, marked or refused."""
