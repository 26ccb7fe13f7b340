"""Own kernels: the files of a checked kernel travel with its jobs."""

import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('tuner', '0034_channel_kinds'),
        ('webapp', '0008_thread_due'),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.AddField(
            model_name='kernelcheck',
            name='folder',
            field=models.CharField(blank=True, db_default='', max_length=250),
        ),
        migrations.AddField(
            model_name='kernelcheck',
            name='siblings',
            field=models.JSONField(blank=True, null=True),
        ),
        migrations.CreateModel(
            name='OwnKernel',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('name', models.CharField(max_length=40, unique=True)),
                ('kernel', models.CharField(max_length=120)),
                ('file', models.CharField(max_length=300)),
                ('sources', models.JSONField()),
                ('adapter', models.TextField()),
                ('call', models.CharField(blank=True, max_length=2000)),
                ('reference', models.CharField(blank=True, max_length=120)),
                ('description', models.TextField()),
                ('source_hash', models.CharField(max_length=64)),
                ('created', models.DateTimeField(auto_now_add=True)),
                ('check_made', models.ForeignKey(null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='own_kernels', to='tuner.kernelcheck')),
                ('owner', models.ForeignKey(null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('project', models.ForeignKey(db_default=1, default=1, on_delete=django.db.models.deletion.PROTECT, related_name='+', to='webapp.project')),
            ],
            options={
                'ordering': ['-created', '-id'],
                'indexes': [models.Index(fields=['file', 'kernel'], name='ownkernel_versions')],
            },
        ),
    ]
