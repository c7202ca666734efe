"""Commands for real sites, which join ``multicentre`` by entry points."""
