"""There is no weekly digest any more: who asked for one is asked for nothing else in its place.

An empty list of events means the usual ones, so a channel that had the digest alone is switched off.
"""

from django.db import migrations


def drop_events(apps, schema_editor):
    for row in apps.get_model("tuner", "Notified")._base_manager.filter(verdicts__contains="DIGEST"):
        row.verdicts = [each for each in row.verdicts if each != "DIGEST"]
        row.enabled = row.enabled and bool(row.verdicts)
        row.save(update_fields=["verdicts", "enabled"])


class Migration(migrations.Migration):

    dependencies = [("webapp", "0008_thread_due"), ("tuner", "0037_cachedconfig_flush")]

    operations = [
        migrations.RunPython(drop_events, migrations.RunPython.noop, elidable=True, hints={"tables": ("tuner_notified",)}),
        migrations.RemoveField("talkpreference", "digest"),
        migrations.DeleteModel("DigestSent"),
    ]
