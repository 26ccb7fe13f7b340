"""Analyses of a whole trace: one topic is one question, one pure function, one template."""
