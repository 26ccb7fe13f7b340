from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('tuner', '0030_listed_spaces'),
    ]

    operations = [
        migrations.AddField(
            model_name='productionday',
            name='watched',
            field=models.JSONField(null=True),
        ),
    ]
