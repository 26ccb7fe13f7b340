"""Settings of a process that stores files and asks no database."""

SECRET_KEY = "of no use here"
INSTALLED_APPS: list[str] = []
HOME = "/nonexistent"           # replaced by the folder of each case
STORAGES = {"default": {"BACKEND": "django.core.files.storage.FileSystemStorage", "OPTIONS": {"location": HOME}}}
