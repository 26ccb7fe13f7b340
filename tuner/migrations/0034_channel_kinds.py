"""Kinds of channels stand in a table of their own (tuner.gate.channels.kinds.table)."""

from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [("tuner", "0033_stop_at_ceiling")]

    operations = [migrations.AlterField("notified", "kind", models.CharField(max_length=8))]
