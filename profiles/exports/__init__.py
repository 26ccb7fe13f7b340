"""Tables and traces as files to keep."""
