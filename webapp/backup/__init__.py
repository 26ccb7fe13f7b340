"""Backup and restore of an installation: rows, objects and keys. What a backup is made of: docs/operate-backup.md."""
