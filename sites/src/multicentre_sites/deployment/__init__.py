"""Sites that are real machines: their keys, their coordinator, and what stands between them."""
