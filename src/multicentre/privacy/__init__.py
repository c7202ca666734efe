"""What a site allows, what it lets out, and what it writes down about it."""
