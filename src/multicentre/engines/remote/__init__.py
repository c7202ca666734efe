"""Sites in processes of their own: calls and outcomes as bytes, whatever carries them."""
