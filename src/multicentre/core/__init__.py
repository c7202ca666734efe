"""The core: messages, steps, the site's runtime and the coordinator's handle. It knows no method and no engine."""
