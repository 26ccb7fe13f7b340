"""FLOP of one launch of each shape of a product: they tell the problems of a persistent kernel apart."""

from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('profiles', '0028_stored_uploads'),
    ]

    operations = [
        migrations.AddField(
            model_name='kernelshape',
            name='flop',
            field=models.FloatField(null=True),
        ),
    ]
