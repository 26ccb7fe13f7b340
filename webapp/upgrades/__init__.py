"""What an upgrade does to an installation that holds data."""
