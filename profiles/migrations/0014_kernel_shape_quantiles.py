"""Quantiles and the floor of each kernel shape; a build's change names the sizes of its shape."""

from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('profiles', '0013_kernel_without_duration'),
    ]

    operations = [
        migrations.AddField(
            model_name='kernelshape',
            name='floor_ns',
            field=models.FloatField(null=True),
        ),
        migrations.AddField(
            model_name='kernelshape',
            name='p50_ns',
            field=models.FloatField(null=True),
        ),
        migrations.AddField(
            model_name='kernelshape',
            name='p95_ns',
            field=models.FloatField(null=True),
        ),
        migrations.AlterField(
            model_name='buildchange',
            name='shape',
            field=models.CharField(blank=True, max_length=160),
        ),
    ]
