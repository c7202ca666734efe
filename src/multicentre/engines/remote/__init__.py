"""Sites in separate processes: calls and outcomes as bytes, independent of the transport."""
