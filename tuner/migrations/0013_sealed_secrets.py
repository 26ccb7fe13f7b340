"""Signing secrets of webhooks are encrypted: a copy of the database signs nothing.

The keys are made here as `tuner.notify.secret` made them when this was written: a migration does not change with the application.
"""

from base64 import urlsafe_b64encode

from cryptography.fernet import Fernet, MultiFernet
from django.conf import settings
from django.db import migrations, models
from django.utils.crypto import salted_hmac


def load_keys():
    keys = [settings.SECRET_KEY, *settings.SECRET_KEY_FALLBACKS]
    return MultiFernet([Fernet(urlsafe_b64encode(salted_hmac("tuner.notify.secret", b"", key, algorithm="sha256").digest()))
                        for key in keys])


def seal(apps, schema_editor):
    keys = load_keys()
    for row in apps.get_model("tuner", "Notified").objects.exclude(secret="").iterator():
        row.secret = keys.encrypt(row.secret.encode()).decode()
        row.save(update_fields=["secret"])


def unseal(apps, schema_editor):
    keys = load_keys()
    for row in apps.get_model("tuner", "Notified").objects.exclude(secret="").iterator():
        row.secret = keys.decrypt(row.secret).decode()
        row.save(update_fields=["secret"])


class Migration(migrations.Migration):

    dependencies = [("tuner", "0012_suite_capture_slower")]

    operations = [
        migrations.AlterField("notified", "secret", models.CharField(blank=True, max_length=500)),
        migrations.RunPython(seal, unseal),
    ]
