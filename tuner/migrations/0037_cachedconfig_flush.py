"""How L2 was flushed becomes part of a cache entry's key; entries that stand get what their own evidence says."""

from django.db import migrations, models

NEW = ('project', 'operator', 'dtype', 'shape_key', 'gpu', 'toolkit', 'driver', 'policy', 'flush', 'source_hash', 'recorded', 'origin')


def fill(apps, schema_editor):
    """Write what the policy in an entry's evidence says; where it says nothing, nothing is known."""
    rows = apps.get_model('tuner', 'CachedConfig')._base_manager
    changed = []
    for row in rows.only('pk', 'evidence').iterator(2000):
        policy = (row.evidence or {}).get('policy') if isinstance(row.evidence, dict) else None
        size = policy.get('flush_bytes') if isinstance(policy, dict) else None
        if not isinstance(size, int | float) or not size:
            continue
        way = policy.get('flush')                   # times from before the other ways were known: a plain write
        row.flush = f"{way if isinstance(way, str) and way else 'write'} {size / 2**20:.0f} MB"[:40]
        changed.append(row)
    rows.bulk_update(changed, ['flush'], batch_size=2000)


class Migration(migrations.Migration):

    dependencies = [
        ('tuner', '0036_kernel_sources'),
    ]

    operations = [
        migrations.AddField(
            model_name='cachedconfig',
            name='flush',
            field=models.CharField(blank=True, db_default='', max_length=40),
        ),
        migrations.RunPython(fill, migrations.RunPython.noop, elidable=True),
        migrations.RemoveConstraint(
            model_name='cachedconfig',
            name='cachedconfig_key',
        ),
        migrations.AddConstraint(
            model_name='cachedconfig',
            constraint=models.UniqueConstraint(fields=NEW, name='cachedconfig_key'),
        ),
    ]
