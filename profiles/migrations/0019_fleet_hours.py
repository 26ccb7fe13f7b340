from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('profiles', '0018_fleet_months'),
    ]

    operations = [
        migrations.CreateModel(
            name='FleetHour',
            fields=[
                ('hour', models.BigIntegerField(primary_key=True, serialize=False)),
                ('written', models.DateTimeField()),
                ('compared', models.BinaryField(null=True)),
            ],
            options={
                'indexes': [models.Index(condition=models.Q(('compared__isnull', False)), fields=['hour'], name='fleethour_compared')],
            },
        ),
        migrations.RunSQL("INSERT INTO profiles_fleethour (hour, written) SELECT (day - DATE '1970-01-01') * 24 + h, written "
                          "FROM profiles_fleetday, generate_series(0, 23) h", migrations.RunSQL.noop),
    ]
