"""Kernels that are gone, and what a build is known by: every branch that was said of it, and its parents."""

from __future__ import annotations

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("tuner", "0031_production_watched")]

    operations = [
        migrations.AddField("gate", "allow_gone", models.BooleanField(default=False)),
        migrations.AddField("build", "refs", models.JSONField(default=list)),
        migrations.AddField("build", "ancestors", models.JSONField(default=list)),
        migrations.AlterField("baselinechange", "action", models.CharField(max_length=12, choices=[
            ("pin", "Pin"), ("roll", "Roll"), ("intended", "Intended"), ("gone", "Gone")])),
    ]
