"""The table of capture tools says which names are valid. Nothing changes in the database."""

from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('profiles', '0011_build_change_why'),
    ]

    operations = [
        migrations.AlterField(
            model_name='capture',
            name='tool',
            field=models.CharField(max_length=8),
        ),
    ]
