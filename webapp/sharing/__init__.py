"""Sharing a profile by a link: who has it reads this profile, and nothing else, without an account."""
