"""Regressions say why and keep what people did; where a kernel's speed changed over builds is kept."""

import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("tuner", "0006_builds_suites_gates")]

    operations = [
        migrations.AddField("regression", "history", models.JSONField(default=list)),
        migrations.AddField("regression", "why", models.TextField(blank=True)),
        migrations.AlterField("regression", "ratio", models.FloatField(null=True)),
        migrations.CreateModel(
            name="KernelSeries",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("gpu", models.CharField(blank=True, max_length=120)),
                ("toolkit", models.CharField(blank=True, max_length=80)),
                ("driver", models.CharField(blank=True, max_length=40)),
                ("recorded", models.CharField(blank=True, max_length=120)),
                ("branch", models.CharField(blank=True, max_length=120)),
                ("changes", models.JSONField(default=list)),
                ("builds", models.IntegerField(default=0)),
                ("runs", models.IntegerField(default=0)),
                ("newest_run", models.BigIntegerField(default=0)),
                ("computed", models.DateTimeField(auto_now=True)),
                ("kernel", models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name="series",
                                             to="tuner.suitekernel")),
            ],
            options={
                "verbose_name_plural": "kernel series",
                "constraints": [models.UniqueConstraint(fields=("kernel", "gpu", "toolkit", "driver", "recorded", "branch"),
                                                        name="kernelseries_once")],
            },
        ),
    ]
