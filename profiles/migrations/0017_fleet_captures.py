import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
        ('profiles', '0016_fleet_merge'),
    ]

    operations = [
        migrations.CreateModel(
            name='FleetCapture',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('pid', models.IntegerField()),
                ('job', models.CharField(blank=True, max_length=200)),
                ('rank', models.IntegerField(null=True)),
                ('steps', models.IntegerField(default=0)),
                ('milliseconds', models.IntegerField(default=0)),
                ('start_ms', models.BigIntegerField(default=0)),
                ('why_ordered', models.CharField(blank=True, max_length=300)),
                ('created', models.DateTimeField(auto_now_add=True)),
                ('changed', models.DateTimeField(auto_now=True)),
                ('state', models.CharField(choices=[('ordered', 'Ordered'), ('asked', 'Asked'), ('uploading', 'Uploading'),
                                                    ('uploaded', 'Uploaded'), ('failed', 'Failed')],
                                           default='ordered', max_length=12)),
                ('why', models.CharField(blank=True, max_length=300)),
                ('took_s', models.FloatField(null=True)),
                ('bytes', models.BigIntegerField(null=True)),
                ('agent', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='captures',
                                            to='profiles.fleetagent')),
                ('ordered_by', models.ForeignKey(null=True, on_delete=django.db.models.deletion.SET_NULL,
                                                 to=settings.AUTH_USER_MODEL)),
                ('profile', models.ForeignKey(null=True, on_delete=django.db.models.deletion.SET_NULL,
                                              related_name='fleet_captures', to='profiles.profile')),
            ],
            options={
                'ordering': ['-id'],
                'indexes': [models.Index(condition=models.Q(('state__in', ['ordered', 'asked', 'uploading'])), fields=['agent'],
                                         name='fleetcapture_open')],
            },
        ),
    ]
