from django.db import migrations, models

# the sums of jobs and what lists are read of, as `profiles.fleet.tables` describes them
FACTS = (
    'CREATE TABLE fleet_contexts_hour (at integer NOT NULL, context bigint NOT NULL, launches bigint NOT NULL '
    'DEFAULT 0, total_ns bigint NOT NULL DEFAULT 0, estimate_launches double precision NOT NULL DEFAULT 0, '
    'estimate_ns double precision NOT NULL DEFAULT 0, square double precision NOT NULL DEFAULT 0, windows bigint '
    'NOT NULL DEFAULT 0, observed_ns bigint NOT NULL DEFAULT 0, wall_ns bigint NOT NULL DEFAULT 0, min_ns bigint '
    'NOT NULL, max_ns bigint NOT NULL, bucket smallint[] NOT NULL, count bigint[] NOT NULL) PARTITION BY RANGE (at)',
    'CREATE INDEX fleet_contexts_hour_context ON fleet_contexts_hour (context, at)',
    'CREATE INDEX fleet_contexts_hour_at ON fleet_contexts_hour USING brin (at)',
    'CREATE TABLE fleet_contexts_day (at integer NOT NULL, context bigint NOT NULL, launches bigint NOT NULL '
    'DEFAULT 0, total_ns bigint NOT NULL DEFAULT 0, estimate_launches double precision NOT NULL DEFAULT 0, '
    'estimate_ns double precision NOT NULL DEFAULT 0, square double precision NOT NULL DEFAULT 0, windows bigint '
    'NOT NULL DEFAULT 0, observed_ns bigint NOT NULL DEFAULT 0, wall_ns bigint NOT NULL DEFAULT 0, min_ns bigint '
    'NOT NULL, max_ns bigint NOT NULL, bucket smallint[] NOT NULL, count bigint[] NOT NULL) PARTITION BY RANGE (at)',
    'CREATE INDEX fleet_contexts_day_context ON fleet_contexts_day (context, at)',
    'CREATE INDEX fleet_contexts_day_at ON fleet_contexts_day USING brin (at)',
    'CREATE INDEX fleet_totals_day_sums ON fleet_totals_day (at, kernel, gpu_model) INCLUDE (launches, total_ns, '
    'estimate_launches, estimate_ns, square, min_ns, max_ns)',
    'CREATE INDEX fleet_contexts_day_sums ON fleet_contexts_day (at, context) INCLUDE (launches, total_ns, '
    'estimate_launches, estimate_ns, square, windows, observed_ns, wall_ns, min_ns, max_ns)',
)


class Migration(migrations.Migration):

    dependencies = [
        ('profiles', '0015_fleet'),
    ]

    operations = [
        migrations.AddField(
            model_name='fleetbatch',
            name='merge',
            field=models.BigIntegerField(null=True),
        ),
        migrations.AddField(
            model_name='fleetday',
            name='compacted',
            field=models.BigIntegerField(default=0),
        ),
        migrations.RunSQL(list(FACTS), [f"DROP {sql.split()[1]} {sql.split()[2]}" for sql in FACTS
                                        if sql.startswith("CREATE TABLE") or "_sums ON" in sql]),
    ]
