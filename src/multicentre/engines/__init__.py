"""Engines: transport of calls and answers, in this process or over Flower."""
