"""What is old goes, what is needed stays: retention of a project's rows and files."""
