"""Kernel files that are named by repository and commit, or by package and version."""

from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('tuner', '0035_own_kernels'),
    ]

    operations = [
        migrations.AddField(
            model_name='kernelcheck',
            name='source',
            field=models.JSONField(blank=True, null=True),
        ),
        migrations.AddField(
            model_name='ownkernel',
            name='origin',
            field=models.CharField(blank=True, db_default='', max_length=700),
        ),
    ]
