"""Signing secrets of webhooks are encrypted: a copy of the database signs nothing."""

from django.db import migrations, models


def seal(apps, schema_editor):
    from tuner.notify.secret import sealed

    for row in apps.get_model("tuner", "Notified").objects.exclude(secret="").iterator():
        row.secret = sealed(row.secret)
        row.save(update_fields=["secret"])


def unseal(apps, schema_editor):
    from tuner.notify.secret import opened

    for row in apps.get_model("tuner", "Notified").objects.exclude(secret="").iterator():
        row.secret = opened(row.secret)
        row.save(update_fields=["secret"])


class Migration(migrations.Migration):

    dependencies = [("tuner", "0012_suite_capture_slower")]

    operations = [
        migrations.AlterField("notified", "secret", models.CharField(blank=True, max_length=500)),
        migrations.RunPython(seal, unseal),
    ]
