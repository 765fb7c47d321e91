"""Stand-ins for the daemon's surroundings; they pass the same contract tests as the real ones."""
