"""Programs that measure what README and docs claim: see README.md."""
