"""What stands in for modules that are not here: names that may be asked for."""
