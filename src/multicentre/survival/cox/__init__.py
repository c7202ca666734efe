"""Cox proportional hazards model, fitted exactly via sums over sites."""
