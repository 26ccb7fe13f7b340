"""Deliveries keep what they say, when they are tried next, and are made once for each event."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("tuner", "0007_regressions_and_series")]

    operations = [
        migrations.AlterModelOptions("delivery", {"ordering": ["-created", "-id"], "verbose_name_plural": "deliveries"}),
        migrations.AddField("delivery", "answer", models.CharField(blank=True, max_length=120)),
        migrations.AddField("delivery", "body", models.JSONField(default=dict)),
        migrations.AddField("delivery", "due", models.DateTimeField(null=True)),
        migrations.AddField("delivery", "event", models.CharField(blank=True, default="", max_length=24), preserve_default=False),
        migrations.AddIndex("delivery", models.Index(fields=["status", "due"], name="delivery_due")),
        migrations.AddConstraint("delivery", models.UniqueConstraint(fields=("to", "gate", "event"), name="delivery_gate_once")),
        migrations.AddConstraint("delivery", models.UniqueConstraint(fields=("to", "regression", "event"),
                                                                     name="delivery_regression_once")),
    ]
