"""Where the launches live: columns, tiles and their reads. Rows are in models.py."""
