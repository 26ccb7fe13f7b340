"""Where the time of a trace went: per GPU, per step, per phase, and which of three things holds it back."""
